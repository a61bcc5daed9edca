"""Statistics of a loaded model at one moment, for metrics and tests: plain numbers, safe on any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Literal

import attrs

from greenroom.schemas.events.events import Usage
from greenroom.schemas.events.explanation import Explanation


@attrs.frozen
class AdmissionStatistics:
    """Counters of shortage, of memory or of rows for other clients, since the model was loaded.

    Args:
        preempted: Number of times that a sequence was preempted and its KV cache released.
        resumed: Number of times that a preempted sequence was resumed.
        cut: Number of answers that ended early because they did not fit even alone.
    """

    preempted: int = 0
    resumed: int = 0
    cut: int = 0


@attrs.frozen
class MemoryStatistics:
    """Bytes that a model holds in the memory account, and the number of its prefix cache's buffers.

    Args:
        weights: Bytes of the weights, including those of a draft model.
        running: Bytes of KV caches of running sequences, including reservations.
        cached: Bytes of the prefix cache.
        cached_buffers: Number of arrays in the prefix cache; macOS limits a process to 499,000 in total.
        cached_buffer_limit: Current limit of arrays in the prefix caches of all models; None for no limit.
        capacity: Bytes that `running` may reach while no other model runs; None for no limit.
    """

    weights: int
    running: int
    cached: int
    cached_buffers: int
    cached_buffer_limit: int | None
    capacity: int | None = None


@attrs.frozen
class PrefixCacheStatistics:
    """Statistics of a prefix cache's memory tier; `hits`, `misses` and `evictions` cover its whole life."""

    nbytes: int
    buffers: int
    nodes: int
    hits: int
    misses: int
    evictions: int


@attrs.frozen
class SpeculationStatistics:
    """The numbers of drafted and accepted tokens since the model was loaded."""

    drafted: int
    accepted: int


@attrs.frozen
class PhaseSeconds:
    """The seconds of a text model's steps by phase since the model was loaded.

    A step that computes prompts beside answers is divided as the two are predicted to cost.

    Args:
        prefill: Seconds in which prompts were computed.
        decode: Seconds in which answers were computed.
    """

    prefill: float = 0.0
    decode: float = 0.0

    def plus(self, other: PhaseSeconds) -> PhaseSeconds:
        return PhaseSeconds(self.prefill + other.prefill, self.decode + other.decode)


@attrs.frozen
class RowStatistics:
    """An answer that is being computed: a row of a batch, or one that waits to become one.

    Args:
        index: Index of the choice within the request.
        stage: `waiting` until its prompt is begun, `prefill` while that is computed, then `decode`.
        prompt_tokens: Length of the prompt in tokens.
        cached_tokens: Tokens of the prompt that were restored from the prefix cache.
        generated_tokens: Tokens of the answer so far.
        explanation: Explanation of its cost so far; None until its prompt is begun, or if none is given.
    """

    request_id: str
    index: int
    stage: Literal["waiting", "prefill", "decode"]
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    explanation: Explanation | None = None


@attrs.frozen
class RankFigures:
    """One rank of a model over several processes: its part of the model, and where it listens for the others.

    `address` has a port; `link` is the kind of the link with it, such as `loopback` or `thunderbolt`.
    """

    host: str
    address: str
    link: str
    layers: int
    nbytes: int


@attrs.frozen
class RankStatus:
    """Status of a rank, which it tells several times in a second.

    Args:
        stage: `importing`, `joining`, `loading` or `ready`.
        progress: Counter that changes with each piece of work.
        loaded: Loaded fraction of its weights.
        nbytes: Bytes of its weights; None until it has read what they are.
        layers: Number of its layers, likewise; 0 until then.
    """

    stage: str = "importing"
    progress: int = 0
    loaded: float = 0.0
    nbytes: int | None = None
    layers: int = 0


@attrs.frozen
class EngineSnapshot:
    """The figures of a loaded model of any kind at one moment, for operators.

    Args:
        running: Number of answers that are being computed; each choice of a request counts.
        waiting: Number of answers that wait within the engine, for memory or for their turn.
        usage: Amounts computed since the load, in the kind's own units, unfinished answers included.
        prefix_cache: Use of the prefix cache, with its hits; None if the model has none.
        speculation: Numbers of drafted and accepted tokens; None if the model drafts none.
        preempted: Number of preemptions since the load.
        token_intervals: Seconds between the tokens of an answer, since the load; None if it writes none.
        rows: Answers that are being generated, with their lengths; empty for models that generate no text.
        phases: Seconds of prefill and decode since the load; zero for models that generate no text.
    """

    running: int
    waiting: int
    usage: Usage
    memory: MemoryStatistics
    prefix_cache: PrefixCacheStatistics | None = None
    speculation: SpeculationStatistics | None = None
    preempted: int = 0
    token_intervals: HistogramSnapshot | None = None
    rows: tuple[RowStatistics, ...] = ()
    phases: PhaseSeconds = PhaseSeconds()
    adapters: tuple[tuple[str, int], ...] = ()
    ranks: tuple[RankFigures, ...] = ()


@attrs.frozen
class TextEngineStatistics:
    """A snapshot of a text engine.

    Args:
        waiting: Number of sequences that wait for memory.
        prefilled: Number of sequences that have finished prefill and wait to join a batch.
        decoding: Number of sequences that get a token in every step.
        batches: Rows and padded length in tokens of each batch.
        steps: Number of steps since the model was loaded.
        prefix_cache: Statistics of the prefix cache; None if the model has none.
        speculation: Statistics of speculative decoding; None if it is off.
        token_intervals: Seconds between the tokens of an answer.
        phases: Seconds of prefill and decode since the model was loaded.
    """

    requests: int
    waiting: int
    prefilling: int
    prefilled: int
    decoding: int
    batches: tuple[tuple[int, int], ...]
    steps: int
    memory: MemoryStatistics
    admission: AdmissionStatistics
    prefix_cache: PrefixCacheStatistics | None
    speculation: SpeculationStatistics | None
    token_intervals: HistogramSnapshot
    phases: PhaseSeconds
    adapters: tuple[tuple[str, int], ...] = ()

    def snapshot(self, usage: Usage, rows: tuple[RowStatistics, ...]) -> EngineSnapshot:
        """Return the figures for operators."""
        running = self.prefilling + self.prefilled + self.decoding
        return EngineSnapshot(
            running,
            self.waiting,
            usage,
            self.memory,
            self.prefix_cache,
            self.speculation,
            self.admission.preempted,
            self.token_intervals,
            rows,
            self.phases,
            self.adapters,
        )


@attrs.frozen
class HistogramSnapshot:
    """The observations of a histogram up to one moment: plain numbers, safe on any thread.

    Args:
        bounds: Inclusive upper bounds of the buckets, ascending.
        counts: Number of observations in each bucket, and at the end those above the last bound.
        total: Sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """Return the observations of both; the bounds must be the same."""
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return HistogramSnapshot(self.bounds, counts, self.total + other.total)


class Histogram:
    """A histogram that grows, confined to one thread.

    Args:
        bounds: Inclusive upper bounds of the buckets, ascending.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total)


@attrs.frozen
class RequestDurations:
    """The seconds that completed requests took; failed and cancelled ones are left out.

    Args:
        first_token: From the request to its first token, of requests that generate any.
        queued: Before the prompt was computed.
        prefill: While the prompt was computed.
        decode: While the answer was computed.
    """

    first_token: HistogramSnapshot
    whole: HistogramSnapshot
    queued: HistogramSnapshot
    prefill: HistogramSnapshot
    decode: HistogramSnapshot


@attrs.frozen
class ModelTotals:
    """The figures of a model since the server's start. None of them ever decreases.

    Args:
        usage: Amounts computed, in the kind's own units, those of unfinished answers included.
        finished: Numbers of requests by finish reason.
        failed: Numbers of requests by the code of their problem.
        durations: Seconds that requests took.
        token_intervals: Seconds between the tokens of an answer; None if it has written none.
        load_failures: Number of loads that failed, and of crashes and hangs of a loaded model.
        restarts: Number of loads that followed an error.
        evictions: Number of unloads that made room for another model.
        phases: Seconds of prefill and decode.
        adapted: Numbers of ended requests by their LoRA adapter; `other` for all but the first 64 names.
    """

    usage: Usage
    finished: Mapping[str, int]
    failed: Mapping[str, int]
    durations: RequestDurations
    token_intervals: HistogramSnapshot | None = None
    texts: int = 0
    documents: int = 0
    preempted: int = 0
    loads: int = 0
    load_failures: int = 0
    restarts: int = 0
    evictions: int = 0
    phases: PhaseSeconds = PhaseSeconds()
    adapted: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen
class RemoteStatus:
    """The state of a remote.

    Args:
        url: Its address, without routes.
        breaker: State of its circuit breaker: `closed`, `open` or `half_open`.
        problem: Reason why it is not asked, or why its last list did not come; empty if there is none.
        models: Names here of the models of its last list; `loaded`, those that are known to be in memory.
        running: Number of requests that run there.
        requests: Number of requests that were sent; `failures`, those that it failed.
        bytes_sent: Bytes of bodies that have left this machine.
    """

    name: str
    url: str
    api: str
    breaker: Literal["closed", "open", "half_open"]
    problem: str
    models: tuple[str, ...]
    running: int
    requests: int
    failures: int
    bytes_sent: int
    bytes_received: int
    loaded: tuple[str, ...] = ()
