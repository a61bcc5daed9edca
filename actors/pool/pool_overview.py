"""Answers to operators about all models of the pool, and changes that they ask for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.core.watchers import Watchers
from greenroom.actors.pool.ledger import Ledger
from greenroom.actors.pool.memory_reading import MemoryReading
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.planning.load_plan import plan_load
from greenroom.actors.pool.planning.model_news import news_of, present_news
from greenroom.actors.pool.planning.pool_events import HeldReleased, PinSet, PoolEvent
from greenroom.actors.pool.refusal_problems import refusal_problem
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.operator_protocol import (
    CancelRequest,
    ListRequests,
    LoadPlan,
    ModelPinned,
    OperatorMessage,
    PinModel,
    PlanLoad,
    RequestCancelled,
    RequestState,
    RequestStatus,
    RequestStatuses,
    WatchModels,
)
from greenroom.schemas.protocols.pool_protocol import ModelStatus

log = get_logger(actor="pool")

_CANCELLED = Problem(503, "request_cancelled", "The operator of this server has cancelled the request.")


class PoolOverview:
    """Answers to operators' messages about all models, and changes that need no decision of the pool.

    Args:
        ledger: State and records of the models.
        memory: Reading of the memory that other programs leave.
    """

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
        """Bytes that models may have together; None if unknown."""
        return self._ledger.state.limit

    def statuses(self, hung_threads: Mapping[str, int]) -> tuple[ModelStatus, ...]:
        """Return the status of every model for operators.

        Args:
            hung_threads: Number of hung threads that have not ended, by model.
        """
        records = self._ledger.records
        return tuple(record.status(hung_threads.get(str(record.key), 0)) for record in records)

    @property
    def next_expiry(self) -> float | None:
        """Time, by `time.monotonic()`, at which the next idle model is to be unloaded; None if none is."""
        return self._ledger.next_expiry

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
        """Record that all held memory is free."""
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
    """Yield the requests of a model that have not ended, with their states."""
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
