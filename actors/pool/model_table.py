"""All models that the pool knows, and the decisions about them, without any use of Trio."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from greenroom.actors.core.reply import Reply
from greenroom.actors.model.model import Model
from greenroom.actors.pool.eviction_policy import ModelUse, Room, no_room_will_come, plan
from greenroom.actors.pool.lease import Found, Granted, Lease
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.queue_statuses import greet_newcomers, send_changes
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_crashed, no_room, queue_full
from greenroom.schemas.protocols.model_protocol import (
    FailRequests,
    Load,
    LoadFailed,
    ModelReport,
    Stop,
    Unload,
    WaitForRoom,
)
from greenroom.schemas.protocols.pool_protocol import ModelStatus
from greenroom.schemas.settings.settings import Settings


class ModelTable:
    """The pool's models: accepts requests, grants leases, and starts, loads, unloads and stops models.

    Args:
        start: Function that creates a model's actor in the given state and starts to supervise it.
        on_ticket_closed: Callback for a ticket whose reply closes or ends; must not block.
        on_lease_closed: Callback for a lease that closes; must not block.
    """

    def __init__(
        self,
        settings: Settings,
        start: Callable[[ModelKey, ModelState], Model],
        on_ticket_closed: Callable[[ModelRecord, Ticket], None],
        on_lease_closed: Callable[[ModelRecord, Lease], None],
    ) -> None:
        self._slots = settings.max_batch
        self._max_queue = settings.max_queue
        self._max_loaded_models = settings.max_loaded_models
        self._start = start
        self._on_ticket_closed = on_ticket_closed
        self._on_lease_closed = on_lease_closed
        self._records: dict[ModelKey, ModelRecord] = {}

    @property
    def waiting(self) -> bool:
        """True if any request waits."""
        return any(record.waiting for record in self._records.values())

    @property
    def busy(self) -> bool:
        """True if any request waits for a model, holds a lease or consults one."""
        return any(record.in_use for record in self._records.values())

    def statuses(self, hung_threads: Mapping[str, int]) -> tuple[ModelStatus, ...]:
        """Return the status of every model for operators.

        Args:
            hung_threads: Number of hung threads that have not ended, by model.
        """
        return tuple(record.status(hung_threads.get(str(key), 0)) for key, record in self._records.items())

    def admit(self, key: ModelKey, request_id: str, reply: Reply, choices: int = 1) -> None:
        """Queue a request for its model, or reject it."""
        record = self._record_of(key)
        now = time.monotonic()
        refusal = record.refusal(now)
        if (
            refusal is None
            and record.room is Room.NONE
            and no_room_will_come(self._uses(), self._max_loaded_models)
        ):
            refusal = self._no_room(key)
        slots = min(choices, self._slots)
        if refusal is None and record.tickets.length_beyond(record.free_slots, slots) > record.max_queue:
            inside = max(0, record.used_slots - self._slots)  # waiting requests in an engine that admits all
            refusal = queue_full(record.key.model, len(record.tickets) + inside)
        if refusal is not None:
            reply.fail(refusal)
            return
        if reply.closed:
            return
        reply.send(Found(record.key, self._started(record).ref))
        ticket = Ticket(reply, request_id, slots)
        if not record.tickets:
            record.waiting_since = now
        record.tickets.add(ticket)
        reply.watch(partial(self._on_ticket_closed, record, ticket))

    def consult(self, key: ModelKey, request_id: str, reply: Reply) -> None:
        """Give a request access to a model for work without weights, or reject it."""
        if reply.closed:
            return
        record = self._record_of(key)
        if len(record.consultations) >= self._slots + self._max_queue:
            reply.fail(queue_full(key.model, len(record.consultations)))
            return
        reply.send(Found(record.key, self._started(record).ref))
        ticket = Ticket(reply, request_id, 0)
        record.consultations.append(ticket)
        reply.watch(partial(self._on_ticket_closed, record, ticket))

    def close_ticket(self, record: ModelRecord, ticket: Ticket) -> None:
        """Remove a request whose reply has closed or has ended with a problem."""
        if ticket in record.consultations:
            record.consultations.remove(ticket)
            return
        if record.tickets.remove(ticket) and not ticket.reply.ended:
            ticket.log_cancelled(record.log)

    def close_lease(self, record: ModelRecord, lease: Lease) -> None:
        """Release the slots of a lease."""
        granted = record.leases.pop(lease, None)
        if granted is not None:
            record.waiting_time.observe(time.monotonic() - granted)

    def fail_all(self, problem: Problem) -> None:
        """Fail every waiting request, and tell the models to fail theirs."""
        for record in self._records.values():
            _fail_waiting(record, problem)
            if record.model is not None:
                record.model.send(FailRequests(problem))

    def fail_unloaded(self, problem: Problem) -> None:
        """Fail every request that waits for a model to load."""
        for record in self._records.values():
            if not record.ready:
                _fail_waiting(record, problem)

    def send_queue_statuses(self) -> None:
        """Send waiting requests their status if it has changed."""
        send_changes(self._records.values(), time.monotonic())

    def record(self, model: Model, report: ModelReport) -> None:
        """Record a model's report, unless its actor has been stopped."""
        record = self._records[model.key]
        if model not in (record.model, record.remnant):
            return
        now = time.monotonic()
        record.record_report(report, now)
        refusal = report.problem if isinstance(report, LoadFailed) else record.refusal(now)
        if refusal is not None:
            _fail_waiting(record, refusal)

    def record_crash(self, model: Model) -> None:
        """Record an actor's own crash: a failed load, except for the memory that its worker still holds."""
        record = self._records[model.key]
        if record.model is model:
            self.record(model, LoadFailed(model_crashed(model.key.model)))
            record.record_crash(model)

    def record_exit(self, model: Model) -> None:
        """Record the complete end of an actor."""
        self._records[model.key].record_exit(model)

    def advance(self) -> None:
        """Decide and act on the present state; call it after every report."""
        now = time.monotonic()
        for record in self._records.values():
            self._grant(record, now)
        decided = plan(self._uses(), self._max_loaded_models)
        for record in self._records.values():
            record.paused = record.key in decided.paused or record.key in decided.unload
            self._grant(record, now)
        for key in decided.unload:
            self._unload(self._records[key])
        for key in decided.load:
            self._load(self._records[key])
        for key in decided.wait:
            self._wait(self._records[key])
        for key in decided.refused:
            _fail_waiting(self._records[key], self._no_room(key))
        for record in self._records.values():
            self._stop_unused(record)
        greet_newcomers(self._records.values(), now)

    def _record_of(self, key: ModelKey) -> ModelRecord:
        if key not in self._records:
            self._records[key] = ModelRecord(key, self._slots, self._max_queue)
        return self._records[key]

    def _uses(self) -> list[ModelUse]:
        now = time.monotonic()
        return [record.use(now) for record in self._records.values()]

    def _no_room(self, key: ModelKey) -> Problem:
        hung = tuple(str(other) for other, record in self._records.items() if record.hung)
        return no_room(key.model, hung)

    def _started(self, record: ModelRecord) -> Model:
        if record.model is None:
            record.model = self._start(record.key, record.state)
        return record.model

    def _grant(self, record: ModelRecord, now: float) -> None:
        while record.model is not None and (ticket := record.next_ticket()) is not None:
            release = partial(self._on_lease_closed, record)
            lease = Lease(record.key, record.model.ref, ticket.slots, release)
            record.leases[lease] = record.last_used = now
            ticket.reply.send(Granted(lease))

    def _load(self, record: ModelRecord) -> None:
        record.room = Room.GRANTED
        self._started(record).send(Load())

    def _wait(self, record: ModelRecord) -> None:
        if record.state is not ModelState.WAITING:
            self._started(record).send(WaitForRoom())

    def _unload(self, record: ModelRecord) -> None:
        record.room = Room.RECLAIMED
        self._started(record).send(Unload())

    def _stop_unused(self, record: ModelRecord) -> None:
        """Stop an actor without a place among the loaded models and without requests."""
        if record.model is None or record.room is not Room.NONE or record.in_use:
            return
        record.model.send(Stop())
        record.record_stopped()


def _fail_waiting(record: ModelRecord, problem: Problem) -> None:
    for ticket in record.tickets.clear():
        ticket.fail(problem, record.log)
    if record.suspended and record.model is not None:
        record.suspended = False
        record.model.send(FailRequests(problem))
