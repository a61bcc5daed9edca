"""Metrics of the pool's models, in Prometheus's text format: vLLM's names where it has them.

Each is a row: its name, its meaning, and the function that reads it. The label `model_name` is an id of the
catalog, never a client's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import attrs

from greenroom.http.operations.http_requests import Labels
from greenroom.schemas.events.histogram import HistogramSnapshot
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.events.totals import ModelTotals
from greenroom.schemas.protocols.download_protocol import Pulls
from greenroom.schemas.protocols.pool_protocol import ModelStatus, PoolStatus

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    ValueFamily = CounterMetricFamily | GaugeMetricFamily

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

VLLM_REASONS = {"cancelled": "abort"}
"""Finish reasons that vLLM has under another name."""


@attrs.frozen
class AuditCounts:
    """The rows of the audit that are not in the database."""

    waiting: int
    lost: int


Labelled = Mapping[str, float]
"""Values by the second label."""


@attrs.frozen
class _Row:
    """A metric with one value for each model, or one for each value of a second label.

    Args:
        label: Name of the second label; None if there is none.
    """

    name: str
    meaning: str
    read: Callable[[ModelStatus, ModelTotals], float | Labelled]
    label: str | None = None


def _running(status: ModelStatus, _totals: ModelTotals) -> float:
    return status.snapshot.running if status.snapshot is not None else 0


def _waiting(status: ModelStatus, _totals: ModelTotals) -> float:
    return status.queue + (status.snapshot.waiting if status.snapshot is not None else 0)


def _kv_usage(status: ModelStatus, _totals: ModelTotals) -> float:
    memory = status.snapshot.memory if status.snapshot is not None else None
    return memory.running / memory.capacity if memory is not None and memory.capacity else 0.0


def _memory(status: ModelStatus, _totals: ModelTotals) -> Labelled:
    loaded: EngineSnapshot | None = status.snapshot
    kinds = {"weights": 0, "kv_cache": 0, "prefix_cache": 0}
    if loaded is not None:
        memory = loaded.memory
        kinds |= {"weights": memory.weights, "kv_cache": memory.running, "prefix_cache": memory.cached}
    return kinds


def _finished(_status: ModelStatus, totals: ModelTotals) -> Labelled:
    return {VLLM_REASONS.get(reason, reason): count for reason, count in totals.finished.items()}


GAUGES = (
    _Row("vllm:num_requests_running", "Answers that are being computed.", _running),
    _Row("vllm:num_requests_waiting", "Requests that wait for the model or for memory.", _waiting),
    _Row("vllm:kv_cache_usage_perc", "KV caches of running answers over their limit, 0 to 1.", _kv_usage),
    _Row("greenroom:memory_bytes", "Memory of the model by kind.", _memory, "kind"),
    _Row("greenroom:memory_granted_bytes", "Memory that the pool has granted.", lambda s, _: s.nbytes),
    _Row("greenroom:model_state", "1 for the model's state.", lambda s, _: {str(s.state): 1}, "state"),
    _Row("greenroom:hung_threads", "Threads of the model that hang.", lambda s, _: s.hung_threads),
)

COUNTERS = (
    _Row("vllm:prefix_cache_queries", "Prompt tokens looked up in the cache.", lambda _, t: t.usage.prompt),
    _Row("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", lambda _, t: t.usage.cached),
    _Row("vllm:num_preemptions", "Preemptions for lack of memory.", lambda _, t: t.preempted),
    _Row("vllm:prompt_tokens", "Prompt tokens, cached ones included.", lambda _, t: t.usage.prompt),
    _Row("vllm:generation_tokens", "Generated tokens.", lambda _, t: t.usage.generated),
    _Row("vllm:request_success", "Requests by finish reason.", _finished, "finished_reason"),
    _Row("greenroom:request_failures", "Failed requests by problem.", lambda _, t: t.failed, "code"),
    _Row("greenroom:model_loads", "Completed loads.", lambda _, t: t.loads),
    _Row("greenroom:model_failures", "Failed loads, crashes and hangs.", lambda _, t: t.load_failures),
    _Row("greenroom:model_restarts", "Loads that followed a failure.", lambda _, t: t.restarts),
    _Row("greenroom:model_evictions", "Unloads for the sake of another model.", lambda _, t: t.evictions),
    _Row("greenroom:reasoning_tokens", "Generated tokens of reasoning.", lambda _, t: t.usage.reasoning),
    _Row(
        "greenroom:prefill_seconds", "Seconds of steps that computed prompts.", lambda _, t: t.phases.prefill
    ),
    _Row("greenroom:decode_seconds", "Seconds of steps that computed answers.", lambda _, t: t.phases.decode),
    _Row("greenroom:draft_tokens", "Drafted tokens.", lambda _, t: t.usage.drafted),
    _Row("greenroom:draft_tokens_accepted", "Accepted drafted tokens.", lambda _, t: t.usage.accepted),
    _Row("greenroom:image_tokens", "Prompt tokens of images.", lambda _, t: t.usage.images),
    _Row("greenroom:texts", "Texts turned into vectors.", lambda _, t: t.texts),
    _Row("greenroom:documents", "Documents scored by relevance.", lambda _, t: t.documents),
    _Row("greenroom:audio_heard_seconds", "Audio transcribed.", lambda _, t: t.usage.heard),
    _Row("greenroom:audio_spoken_seconds", "Speech generated.", lambda _, t: t.usage.spoken),
)
"""Counters; Prometheus's text adds `_total` to the names."""

HISTOGRAMS: Sequence[tuple[str, str, Callable[[ModelTotals], HistogramSnapshot | None]]] = (
    ("vllm:time_to_first_token_seconds", "Request to first token.", lambda t: t.durations.first_token),
    ("vllm:inter_token_latency_seconds", "Between an answer's tokens.", lambda t: t.token_intervals),
    ("vllm:e2e_request_latency_seconds", "Request to end of answer.", lambda t: t.durations.whole),
    ("vllm:request_queue_time_seconds", "Waiting of a request.", lambda t: t.durations.queued),
    ("vllm:request_prefill_time_seconds", "Computing of a prompt.", lambda t: t.durations.prefill),
    ("vllm:request_decode_time_seconds", "Computing of an answer.", lambda t: t.durations.decode),
)
"""Histograms of seconds."""


def metrics_text(
    status: PoolStatus, pulls: Pulls, requests: Mapping[Labels, int], audit: AuditCounts | None = None
) -> bytes:
    """Return all metrics in Prometheus's text format; it takes milliseconds, so call it on a thread.

    Args:
        requests: Number of responses by route, method and class of status.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(status, pulls, requests, audit))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families:
    """A collector for one rendering, as prometheus_client asks for."""

    def __init__(
        self,
        status: PoolStatus,
        pulls: Pulls,
        requests: Mapping[Labels, int],
        audit: AuditCounts | None,
    ) -> None:
        self._requests = requests
        self._audit = audit
        self._models = [(each, each.totals) for each in status.models if each.totals is not None]
        self._draining = status.draining is not None
        self._fetching = [pull.progress for pull in pulls.pulls if pull.state == "running"]
        self._fetched = pulls.ended

    def collect(self) -> Iterator[Metric]:
        """Yield every family, also those without samples yet."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        build = GaugeMetricFamily("greenroom:build_info", "Version.", labels=["version"])
        build.add_metric([_version()], 1)
        yield build
        yield GaugeMetricFamily("greenroom:draining", "1 while it ends.", value=float(self._draining))
        running, rate = len(self._fetching), sum(progress.rate for progress in self._fetching)
        yield GaugeMetricFamily("greenroom:downloads_running", "Downloads under way.", value=running)
        yield GaugeMetricFamily("greenroom:download_bytes_per_second", "Rate of all of them.", value=rate)
        ended = CounterMetricFamily("greenroom:downloads", "Ended downloads.", labels=["state"])
        for state in ("completed", "failed", "cancelled"):
            ended.add_metric([state], self._fetched.get(state, 0))
        yield ended
        answered = CounterMetricFamily(
            "greenroom:http_requests", "Responses to requests.", labels=["route", "method", "status"]
        )
        for labels, count in self._requests.items():
            answered.add_metric(labels, count)
        yield answered
        if self._audit is not None:
            waiting, lost = self._audit.waiting, self._audit.lost
            yield GaugeMetricFamily("greenroom:audit_rows_waiting", "Rows to be written.", value=waiting)
            yield CounterMetricFamily("greenroom:audit_rows_lost", "Rows without a place.", value=lost)
        for rows, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
            for row in rows:
                yield self._filled(row, family(row.name, row.meaning, labels=_labels(row)))
        for name, meaning, read in HISTOGRAMS:
            histogram = HistogramMetricFamily(name, meaning, labels=["model_name"])
            for status, totals in self._models:
                if (observed := read(totals)) is not None:
                    buckets = list(_cumulative(observed))
                    histogram.add_metric([status.key.model], buckets, observed.total)
            yield histogram

    def _filled(self, row: _Row, family: ValueFamily) -> ValueFamily:
        for status, totals in self._models:
            value = row.read(status, totals)
            values = {(): value} if isinstance(value, int | float) else {(k,): v for k, v in value.items()}
            for labels, each in values.items():
                family.add_metric([status.key.model, *labels], each)
        return family


def _labels(row: _Row) -> list[str]:
    return ["model_name"] if row.label is None else ["model_name", row.label]


def _cumulative(observed: HistogramSnapshot) -> Iterator[tuple[str, float]]:
    count = 0
    for bound, each in zip((*map(str, observed.bounds), "+Inf"), observed.counts, strict=True):
        count += each
        yield bound, count


@lru_cache(maxsize=1)
def _version() -> str:
    return version("greenroom")
