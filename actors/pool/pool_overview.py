"""Answers to operators about all models of the pool, and changes that they ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from greenroom.actors.core.reply import Reply, Watchers
from greenroom.actors.pool.eviction_policy import plan_load
from greenroom.actors.pool.lease_queue import Ticket
from greenroom.actors.pool.ledger import Ledger, MemoryReading
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.pool_events import Decided, HeldReleased, PinSet, PoolEvent, Reported
from greenroom.actors.pool.pool_state import ModelUse, Residency
from greenroom.actors.pool.queue_statuses import refusal_problem
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_hung, model_pinned
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    HungWorkerReturned,
    LoadFailed,
    LoadProgress,
    LoadRefused,
    ModelReport,
    Reopen,
    StateChanged,
    Unloaded,
    WorkerHung,
)
from greenroom.schemas.protocols.pool_protocol import (
    CancelRequest,
    ListRequests,
    LoadPlan,
    ModelNews,
    ModelPinned,
    ModelStatus,
    ModelUnloaded,
    NewsKind,
    OperatorMessage,
    PinModel,
    PlanLoad,
    RequestCancelled,
    RequestState,
    RequestStatus,
    RequestStatuses,
    Unloading,
    UnloadModel,
    WatchModels,
)

log = get_logger(actor="pool")

_CANCELLED = Problem(503, "request_cancelled", "The operator of this server has cancelled the request.")


class PoolOverview:
    """Answers to operators' messages about all models, and changes that need no decision of the pool."""

    def __init__(self, ledger: Ledger, memory: MemoryReading) -> None:
        self._ledger = ledger
        self._memory = memory
        self._watchers = Watchers()
        self._ended: Problem | None = None
        ledger.on_change = self._tell_watchers

    @property
    def waiting(self) -> bool:
        return any(record.use.waiting for record in self._ledger.records)

    @property
    def busy(self) -> bool:
        """True if any request waits for a model, holds a lease, or uses a model without its weights."""
        return any(record.in_use for record in self._ledger.records)

    @property
    def limit(self) -> int | None:
        return self._ledger.state.limit

    def statuses(self, hung_threads: Mapping[str, int]) -> tuple[ModelStatus, ...]:
        """Return the status of every model for operators."""
        records = self._ledger.records
        return tuple(record.status(hung_threads.get(str(record.key), 0)) for record in records)

    @property
    def next_expiry(self) -> float | None:
        """Time, by `time.monotonic()`, at which the next idle model is to be unloaded; None if none is."""
        return self._ledger.next_expiry

    def record_of(self, key: ModelKey) -> ModelRecord:
        """Return the record of a model, which is new if none has been named so."""
        return self._ledger[key]

    def answer(self, message: OperatorMessage, reply: Reply) -> None:
        """Answer an operator's message, whose key is that of a known model."""
        match message:
            case PinModel(key, pinned):
                self._ledger.apply(PinSet(key, pinned))
                log.info("model pinned" if pinned else "model unpinned", model=str(key))
                reply.send(ModelPinned(key, pinned))
            case PlanLoad():
                reply.send(self._plan(message))
            case ListRequests():
                reply.send(RequestStatuses(tuple(self._requests())))
            case CancelRequest(ident, problem):
                self._cancel(ident, problem or _CANCELLED, reply)
            case WatchModels() if self._ended is not None:
                reply.fail(self._ended)
            case WatchModels():
                for news in present_news(record.use for record in self._ledger.records):
                    reply.send(news)
                self._watchers.add(reply)

    def record_held_released(self, event: HeldReleased) -> None:
        self._ledger.apply(event)
        self._memory.expire()

    def fail_requests(self, record: ModelRecord) -> None:
        """Fail every request of a model that is unloaded now; what they hold is released afterwards."""
        detail = f"The operator has unloaded '{record.key.model}'."
        problem = Problem(503, "model_unloaded", detail, retry_after=1)
        for state, ticket in list(_tickets(record)):
            _end(record, state, ticket, problem)

    def end_watches(self, problem: Problem) -> None:
        self._ended = problem
        self._watchers.end(problem)

    def _plan(self, message: PlanLoad) -> LoadPlan:
        record, now = self._ledger[message.key], time.monotonic()
        state = self._ledger.state
        found, decided = plan_load(state, message.key, message.need, self._memory.without_held(now))
        broken = None if found.outcome in ("ready", "loading") else message.problem or record.refusal(now)
        if broken is not None:
            return attrs.evolve(found, outcome="refused", unload=(), pause=(), problem=broken)
        for refusal in decided.refused:
            if refusal.key == message.key:
                return attrs.evolve(found, problem=refusal_problem(refusal, state.models.values()))
        return found

    def _requests(self) -> Iterator[RequestStatus]:
        now = time.monotonic()
        for record in self._ledger.records:
            for state, ticket in _tickets(record):
                told = ticket.slots, ticket.priority, round(now - ticket.since, 3)
                yield RequestStatus(ticket.request_id, record.key, state, *told)

    def _cancel(self, ident: str, problem: Problem, reply: Reply) -> None:
        found = [
            (record, state, ticket)
            for record in self._ledger.records
            for state, ticket in _tickets(record)
            # The prompts of one HTTP request have its id with a number behind it.
            if ident and ident in (ticket.request_id, ticket.request_id.partition("-")[0])
        ]
        for record, state, ticket in found:
            _end(record, state, ticket, problem)
        if found:
            reply.send(RequestCancelled(ident, len(found)))
        else:
            detail = f"No request '{ident[:100]}' waits or runs. `GET /admin/requests` lists those that do."
            reply.fail(Problem(404, "request_not_found", detail))

    def _tell_watchers(self, event: PoolEvent) -> None:
        if self._watchers.present:
            for news in news_of(event):
                self._watchers.tell(news)


def _end(record: ModelRecord, state: RequestState, ticket: Ticket, problem: Problem) -> None:
    """Fail a request; of a running one its model knows the figures, and logs the end."""
    if state == "running":
        ticket.reply.fail(problem)
    else:
        ticket.fail(problem, record.log)


def _tickets(record: ModelRecord) -> Iterator[tuple[RequestState, Ticket]]:
    running = (lease.ticket for lease in record.leases)
    by_state: tuple[tuple[RequestState, Iterator[Ticket]], ...] = (
        ("running", running),
        ("waiting", iter(record.tickets)),
        ("preparing", iter(record.prompt_queries)),
    )
    for state, tickets in by_state:
        for ticket in tickets:
            if not (ticket.reply.closed or ticket.reply.ended):
                yield state, ticket


class UnloadRequests:
    """The replies that wait for models to leave the memory. `drop_held`: function that drops what a model has
    left, by its own name, and returns the bytes.
    """

    def __init__(self, drop_held: Callable[[str], int]) -> None:
        self._drop_held = drop_held
        self._waiting: dict[ModelKey, list[tuple[Reply, UnloadModel]]] = {}

    def add(self, record: ModelRecord, reply: Reply, message: UnloadModel) -> bool:
        """Answer a request at once, or keep it; return whether the model is to be unloaded."""
        if record.use.hung:
            reply.fail(model_hung(record.key.model))
        elif message.spares_pinned and record.use.pinned:
            reply.fail(model_pinned(record.key.model))
        else:
            reply.send(Unloading(record.key))
            held = self._dropped(record.key, message)
            if record.use.resident and not (message.reopens and record.use.residency is Residency.OPENING):
                self._waiting.setdefault(record.key, []).append((reply, message))
                return True
            reply.send(ModelUnloaded(record.key, held))
            reply.end()
        return False

    def answer(self, record: ModelRecord, report: ModelReport | None = None) -> None:
        """Answer the requests for a model that has left the memory, or never will."""
        if record.use.hung:
            self._fail(record.key, model_hung(record.key.model))
        elif record.use.residency is Residency.NONE:
            freed = report.freed if isinstance(report, Unloaded) else None
            for reply, message in self._waiting.pop(record.key, ()):
                held = self._dropped(record.key, message)  # a load that began later may have left some
                reply.send(ModelUnloaded(record.key, (freed or 0) + held))
                reply.end()

    def fail_all(self, problem: Problem) -> None:
        for key in [*self._waiting]:
            self._fail(key, problem)

    def _dropped(self, key: ModelKey, message: UnloadModel) -> int:
        return 0 if message.keeps_prefixes else self._drop_held(key.model)

    def _fail(self, key: ModelKey, problem: Problem) -> None:
        for reply, _ in self._waiting.pop(key, ()):
            reply.fail(problem)


def reopen(record: ModelRecord) -> bool:
    """Have a model open its files anew, once no engine is loaded from them; return whether that is now."""
    if record.model is None:
        return False
    record.model.send(Reopen())
    return record.use.residency in (Residency.NONE, Residency.OPENING)


def news_of(event: PoolEvent) -> Iterator[ModelNews]:
    match event:
        case Reported(key, report):
            yield from _news_of_report(key, report)
        case Decided(plan):
            for key, cause in zip(plan.unload, plan.beneficiaries, strict=True):
                yield ModelNews(key, "eviction", "unloading", cause=cause)


def present_news(models: Iterable[ModelUse]) -> Iterator[ModelNews]:
    """Yield the present stage of each model, with which a reader begins."""
    for model in models:
        kind: NewsKind = "unload" if model.state in (ModelState.IDLE, ModelState.UNLOADING) else "load"
        stage = "failed" if model.state is ModelState.ERROR else model.state.value
        yield ModelNews(model.key, kind, stage, 1.0 if model.ready else None, since=model.changed or None)


def _news_of_report(key: ModelKey, report: ModelReport) -> Iterator[ModelNews]:
    match report:
        case StateChanged(ModelState.UNLOADING):
            yield ModelNews(key, "unload", "unloading")
        case StateChanged(state):
            fraction = {ModelState.LOADING: 0.0, ModelState.READY: 1.0}.get(state)
            yield ModelNews(key, "load", state.value, fraction)
        case LoadProgress(fraction):
            yield ModelNews(key, "load", "loading", round(fraction, 4))
        case LoadRefused(problem):
            yield ModelNews(key, "load", "waiting", detail=problem.detail)
        case LoadFailed(problem):
            yield ModelNews(key, "load", "failed", detail=problem.detail)
        case Unloaded(freed):
            yield ModelNews(key, "unload", "idle", nbytes=freed)
        case Crashed(problem):
            yield ModelNews(key, "crash", "crashed", detail=problem.detail)
        case WorkerHung(problem):
            yield ModelNews(key, "crash", "hung", detail=problem.detail)
        case HungWorkerReturned():
            yield ModelNews(key, "crash", "returned")
