"""Health routes, and `/metrics` for Prometheus: its families, rendered on a worker thread."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import attrs
import trio
from quart import Blueprint, Request, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ref import ask_actor
from greenroom.http.answering.http_responses import json_response
from greenroom.http.answering.protocols import FOR_OPERATORS, TEXT, described
from greenroom.http.guard.host_guard import loopback_blueprint
from greenroom.schemas.events.statistics import EngineSnapshot, HistogramSnapshot, ModelTotals
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.download_protocol import ListPulls, Pulls
from greenroom.schemas.protocols.pool_protocol import DescribePool, ModelStatus, PoolStatus
from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus
from greenroom.schemas.protocols.tools_protocol import DescribeSessions, Sessions, SessionStatus

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    ValueFamily = CounterMetricFamily | GaugeMetricFamily


SHARED_SECONDS = 1.0  # Seconds for which all scrapers get the same text


class MetricsPage:
    """The text of `/metrics`, rendered at most once in `SHARED_SECONDS`, however many ask for it."""

    def __init__(self, refs: ActorRefs, requests: HttpRequests) -> None:
        self._refs = refs
        self._requests = requests
        self._rendering = trio.Lock()
        self._text = b""
        self._rendered = -math.inf

    async def text(self) -> bytes:
        """Return the text. Raises ProblemError: the server ends."""
        async with self._rendering:
            if trio.current_time() - self._rendered >= SHARED_SECONDS:
                status = await ask_actor(self._refs.pool, DescribePool(), PoolStatus)
                pulls = await ask_actor(self._refs.downloads, ListPulls(), Pulls)
                tools = await ask_actor(self._refs.tools, DescribeSessions(), Sessions)
                audit = self._refs.audit
                counts = None if audit is None else AuditCounts(audit.waiting, audit.book.lost)
                self._text = await trio.to_thread.run_sync(
                    metrics_text, status, pulls, self._requests.counts(), counts, tools.sessions
                )
                self._rendered = trio.current_time()
            return self._text


def metrics_route(refs: ActorRefs, requests: HttpRequests) -> Blueprint:
    routes = loopback_blueprint("metrics")
    page = MetricsPage(refs, requests)

    @routes.get("/metrics")
    @described("Show metrics for Prometheus", media=(TEXT,), problems=FOR_OPERATORS)
    async def metrics() -> Response:
        return Response(await page.text(), content_type=CONTENT_TYPE)

    return routes


# Metrics of the pool's models, in Prometheus's text format: vLLM's names where it has them.
#
# Each is a row: its name, its meaning, and the function that reads it. The label `model_name` is an id of
# the catalog, never a client's text.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

VLLM_REASONS = {"cancelled": "abort"}  # Finish reasons that vLLM has under another name


@attrs.frozen
class AuditCounts:
    """The rows of the audit that are not in the database."""

    waiting: int
    lost: int


Labelled = Mapping[str, float]
"""Values by the second label."""


@attrs.frozen
class _Row:
    """A metric with one value for each model, or one for each value of a second label."""

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
    _Row("greenroom:adapters", "LoRA adapters in memory.", lambda s, _: len(s.adapters)),
    _Row("greenroom:adapter_bytes", "Their bytes.", lambda s, _: sum(nbytes for _, nbytes in s.adapters)),
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
    _Row("greenroom:adapter_requests", "Ended requests by adapter.", lambda _, t: t.adapted, "adapter"),
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
    status: PoolStatus,
    pulls: Pulls,
    requests: Mapping[Labels, int],
    audit: AuditCounts | None = None,
    sessions: Sequence[SessionStatus] = (),
) -> bytes:
    """Return all metrics in Prometheus's text format; it takes milliseconds, so call it on a thread.
    `requests`: number of responses by route, method and class of status.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(status, pulls, requests, audit, sessions))
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
        sessions: Sequence[SessionStatus],
    ) -> None:
        # Requests choose the labels of servers that they name by address.
        self._sessions = [session for session in sessions if session.is_of_settings]
        self._requests = requests
        self._audit = audit
        self._models = [(each, each.totals) for each in status.models if each.totals is not None]
        self._draining = status.draining is not None
        self._remotes = status.remotes
        self._fetching = [pull.progress for pull in pulls.pulls if pull.state == "running"]
        self._fetched = pulls.ended

    def _of_servers(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        ready = GaugeMetricFamily("greenroom:mcp_server_ready", "1 if it is open.", labels=["server"])
        calls = CounterMetricFamily("greenroom:mcp_calls", "Calls.", labels=["server", "result"])
        lost = CounterMetricFamily("greenroom:mcp_sessions_lost", "Sessions that failed.", labels=["server"])
        for each in self._sessions:
            ready.add_metric([each.label], float(each.state == "ready"))
            lost.add_metric([each.label], each.lost)
            calls.add_metric([each.label, "failed"], each.failures)
            calls.add_metric([each.label, "ok"], each.calls - each.failures - each.running)
        yield from (ready, calls, lost)

    def _of_remotes(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sums = sum(each.requests for each in self._remotes), sum(each.bytes_sent for each in self._remotes)
        yield CounterMetricFamily("greenroom:requests_left", "Requests sent to remotes.", value=sums[0])
        yield CounterMetricFamily("greenroom:bytes_left", "Bytes of bodies sent to remotes.", value=sums[1])
        state = GaugeMetricFamily(
            "greenroom:remote_state", "1 for its breaker's state.", labels=["remote", "state"]
        )
        sent = CounterMetricFamily("greenroom:remote_requests", "Requests.", labels=["remote", "result"])
        for each in self._remotes:
            state.add_metric([each.name, each.breaker], 1)
            sent.add_metric([each.name, "failed"], each.failures)
            sent.add_metric([each.name, "ok"], max(0, each.requests - each.failures - each.running))
        yield from (state, sent)

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
        yield from self._of_remotes()
        if self._sessions:
            yield from self._of_servers()
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


OTHER = "other"  # Label of what is not in the table of routes: unknown paths, and methods that no route has

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

Labels = tuple[str, str, str]
"""Template of a route, method, and class of a status such as `2xx`."""


class HttpRequests:
    """The number of responses since the start, for each route, method and class of status.

    Requests that never reach the routes, such as refused connections and broken heads, are not counted.
    """

    def __init__(self) -> None:
        self._counts: Counter[Labels] = Counter()

    def record(self, request: Request, response: Response) -> None:
        route = OTHER if request.url_rule is None else request.url_rule.rule
        method = request.method if request.method in _METHODS else OTHER
        self._counts[route, method, f"{response.status_code // 100}xx"] += 1

    def counts(self) -> Mapping[Labels, int]:
        """Return the counts so far, which further requests leave as they are."""
        return dict(self._counts)


def health_routes(refs: ActorRefs) -> Blueprint:
    routes = Blueprint("health", __name__)

    @routes.get("/health")
    @described("Say that the process lives, and its id")
    async def health() -> Response:
        return json_response({"status": "ok", "pid": os.getpid()})

    @routes.get("/livez")
    @described("Say that the process lives")
    async def live() -> Response:
        return json_response({"status": "ok"})

    @routes.get("/readyz")
    @described("Say whether the server takes requests", problems=(503,))
    async def ready() -> Response:
        status = await ask_actor(refs.pool, DescribePool(), PoolStatus)
        if not status.ready:
            if status.draining is not None:
                raise ProblemError(attrs.evolve(status.draining, code="not_ready"))
            silent = [str(model.key) for model in status.models if not model.responds]
            stopped = f"these models give no sign of life: {', '.join(silent)}"
            raise ProblemError(
                Problem(503, "not_ready", f"The server takes no requests: {stopped}.", None, 5)
            )
        hung = {str(model.key): model.hung_threads for model in status.models if model.hung_threads}
        store = await ask_actor(refs.store, DescribeStore(), StoreStatus)
        if store.hung_threads:
            hung["store"] = store.hung_threads
        away = {each.name: each.problem for each in status.remotes if each.breaker != "closed"}
        parts = ("hung_threads", hung), ("store", store.problem), ("remotes", away)
        degraded = {name: what for name, what in parts if what}
        return json_response({"status": "degraded" if degraded else "ok", **degraded})

    return routes
