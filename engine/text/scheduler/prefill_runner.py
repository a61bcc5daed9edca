"""Runner that launches prefill chunks and inserts the computed caches into the prefix cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import GROWTH_STEP, Cache, prefills_alone
from greenroom.engine.lora.layers import adapted_rows
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.kv_memory import KvMemory
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCacheClient
from greenroom.engine.text.scheduler.prefill_policy import PrefillRequest
from greenroom.engine.text.scheduler.step_costs import PrefillChunk
from greenroom.engine.text.sequence import SequenceFailures, not_computed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import ProblemError

_FEATURE_SHARE = 0.75
"""Share of a chunk's time budget for computing features, whose cost is not known in advance."""

log = get_logger(__name__)


@attrs.frozen(eq=False)
class LaunchedChunk:
    """Result of launching a chunk. `chunks`: the launched chunk; empty if there was none; `waited_ms`:
    milliseconds of work computed synchronously.
    """

    chunks: list[PrefillChunk]
    prefilled: PrefilledSequences | None = None
    failures: SequenceFailures = attrs.field(factory=list)
    waited_ms: float = 0.0


class PrefillRunner:
    """Computes prompt chunks and inserts the results into the prefix cache.

    Args:
        model: Model, called as `model(tokens, cache=…)` with tokens of shape `[rows, chunk]` and feature
            arguments.
        memory: Memory for the KV caches; None is unlimited.
        clock: Clock in seconds, with any origin.

    Attributes:
        waited_ms: Milliseconds of work computed synchronously since the last reset to 0.
    """

    def __init__(
        self,
        model: Any,
        prefix_cache: PrefixCacheClient,
        memory: KvMemory | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._clock = clock
        self._prefix_cache = prefix_cache
        self._memory = memory
        self._in_flight: list[Cache] = []
        self.waited_ms = 0.0

    def can_cobatch(self, cache: Cache) -> bool:
        """Return whether prompts with such caches can be computed in one pass."""
        return not prefills_alone(self._model) and caches.can_batch(cache)

    def launch(
        self, requests: Sequence[PrefillRequest], tokens: int, milliseconds: float = 0.0
    ) -> LaunchedChunk:
        """Launch `tokens` tokens of one prompt, or all remaining tokens of several.

        If a shared chunk fails, its prompts are computed one by one from then on, to find the faulty one.

        Args:
            milliseconds: Time budget for computing features, if the prompt's next tokens need them.

        Raises:
            Exception: A device failure, caused by these prompts or by earlier work.
        """
        first, together = requests[0], len(requests) > 1
        context = first.computed
        width = max(each.remaining for each in requests) if together else first.chunk(tokens)
        try:
            if first.remaining and not width:
                waited_ms = self._compute_features(first, milliseconds)
                self.waited_ms += waited_ms
                return LaunchedChunk([], waited_ms=waited_ms)
            prefilled = self.compute_together(requests) if together else self.compute(first, width)
        except ProblemError as error:
            raise_unless_own(error)
            return LaunchedChunk([], failures=[(request.sequence, error.problem) for request in requests])
        except Exception as error:
            raise_unless_own(error)
            if together:
                log.exception("common prefill failed", requests=len(requests))
            for request in requests:
                request.alone = True
            failed = () if together else (first.sequence,)
            return LaunchedChunk([], failures=not_computed(failed, "computation"))
        return LaunchedChunk([(len(requests), width, context)] if width else [], prefilled)

    def compute(self, request: PrefillRequest, tokens: int) -> PrefilledSequences | None:
        """Launch the next `tokens` tokens of a prompt; return its sequence if the prompt is complete."""
        cache = request.cache
        assert cache is not None
        if tokens:
            if self._memory is not None:
                self._memory.preallocate(cache, len(request.sequence.prefill_tokens))
            span = slice(request.computed, request.computed + tokens)
            inputs = mx.array(list(request.sequence.prefill_tokens[span]))[None]
            scored: list[mx.array] = []
            features = request.sequence.features
            added = {} if features is None else features.arguments(span.start, span.stop)
            with adapted_rows([request.sequence]):
                logits = self._model(inputs, cache=cache, **added)  # lazy: computed only if they are scored
            if (scores := request.sequence.prompt_logprobs) is not None:
                scored = scores.score(logits[0], request.computed)
            self._launch(cache, scored)
        request.computed += tokens
        if request.remaining == 0 or request.computed in request.checkpoints:
            self._prefix_cache.insert_prompt(request.sequence, cache, None, request.computed)
        elif tokens:
            self._prefix_cache.insert_part(request.sequence, cache, request.computed)
        if request.remaining:
            return None
        self._count_written(request, cache)
        return PrefilledSequences((request.sequence,), cache)

    def compute_together(self, requests: Sequence[PrefillRequest]) -> PrefilledSequences:
        """Launch all remaining tokens of several prompts in one pass."""
        cache = caches.merge([request.cache for request in requests if request.cache is not None])
        lengths = [request.remaining for request in requests]
        width = max(lengths)
        padding = [width - length for length in lengths]
        rows = [_pad(request, pad) for request, pad in zip(requests, padding, strict=True)]
        caches.finalize(cache)
        if any(padding):
            caches.prepare(cache, lengths, padding)
        with adapted_rows(request.sequence for request in requests):
            self._model(mx.array(rows), cache=cache)
        caches.finalize(cache)
        self._launch(cache)
        for index, request in enumerate(requests):
            request.computed += request.remaining
            self._prefix_cache.insert_prompt(request.sequence, cache, index, request.computed)
            self._count_written(request, cache)
        return PrefilledSequences(tuple(request.sequence for request in requests), cache)

    def _count_written(self, request: PrefillRequest, cache: Cache) -> None:
        sequence = request.sequence
        if not sequence.preempted:
            written = self._prefix_cache.count_written(sequence, cache, request.computed)
            sequence.metrics.written_tokens = written

    def wait(self) -> None:
        for cache in self._in_flight:
            mx.eval(caches.state(cache))
        self._in_flight = []

    def reserve(self, requests: Sequence[PrefillRequest]) -> bool:
        """Reserve a batched cache for these prompts beside their cached prefixes; return whether it fits."""
        if self._memory is None:
            return True
        size_model = self._memory.size_model
        longest = max(len(request.sequence.prefill_tokens) for request in requests)
        cached = sum(size_model.nbytes(1, request.computed) for request in requests if request.computed)
        batched = size_model.nbytes(len(requests), longest + GROWTH_STEP, longest)
        return self._memory.grow([request.sequence for request in requests], batched + cached)

    def _compute_features(self, request: PrefillRequest, milliseconds: float) -> float:
        """Compute a prompt's features within a time budget; return the milliseconds taken."""
        features = request.sequence.features
        assert features is not None
        began = self._clock()
        features.compute(request.computed, milliseconds * _FEATURE_SHARE)
        return (self._clock() - began) * 1e3

    def _launch(self, cache: Cache, scored: Sequence[mx.array] = ()) -> None:
        mx.async_eval(caches.state(cache), *scored)
        self._in_flight.append(cache)


def _pad(request: PrefillRequest, padding: int) -> list[int]:
    """Return a prompt's remaining tokens, padded with its last token.

    The embedding of token 0 is often all zeros, which becomes NaN in architectures that normalize by a
    length.
    """
    tokens = request.sequence.prefill_tokens
    return [*tokens[request.computed : -1], *[tokens[-1]] * padding]
