"""Every model that the pool knows, and what is decided about them: plain code that needs no Trio."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from greenroom.actors.core.reply import Reply
from greenroom.actors.model.control import ModelStateChanged
from greenroom.actors.model.model import Model
from greenroom.actors.pool.eviction_policy import plan
from greenroom.actors.pool.lease import Found, Granted, Lease
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import ModelStatus
from greenroom.schemas.problems import Problem, model_crashed, queue_full
from greenroom.schemas.settings import Settings


class ModelTable:
    """Tickets in, leases out; models started, loaded, unloaded and let go in between.

    Args:
        start: Makes the actor of a model and begins to supervise it.
        left: Is told when a waiting request has gone.
        give_back: Is told when a lease closes.
    """

    def __init__(
        self,
        settings: Settings,
        start: Callable[[ModelKey], Model],
        left: Callable[[ModelRecord, Ticket], None],
        give_back: Callable[[ModelRecord, Lease], None],
    ) -> None:
        self._slots = settings.max_batch
        self._max_queue = settings.max_queue
        self._max_models = settings.max_loaded_models
        self._start = start
        self._left = left
        self._give_back = give_back
        self._records: dict[ModelKey, ModelRecord] = {}

    @property
    def waiting(self) -> bool:
        """Whether any request waits."""
        return any(record.tickets for record in self._records.values())

    @property
    def busy(self) -> bool:
        """Whether any request waits or holds a model."""
        return any(record.tickets or record.leases for record in self._records.values())

    def statuses(self) -> tuple[ModelStatus, ...]:
        """The models as operators see them."""
        return tuple(record.status() for record in self._records.values())

    def admit(self, key: ModelKey, request_id: str, reply: Reply) -> None:
        """Let a request wait for its model, or refuse it."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = ModelRecord(key, self._slots)
        now = time.monotonic()
        refusal = record.refusal(now)
        if refusal is None and len(record.tickets) >= self._max_queue + record.free_slots:
            refusal = queue_full(record.key.model, len(record.tickets))
        if refusal is not None:
            reply.fail(refusal)
            return
        if reply.closed:
            return
        reply.send(Found(record.key, self._started(record).ref))
        ticket = Ticket(reply, request_id)
        if not record.tickets:
            record.waiting_since = now
        record.tickets.add(ticket)
        reply.watch(partial(self._left, record, ticket))

    def _started(self, record: ModelRecord) -> Model:
        if record.model is None:
            record.model = self._start(record.key)
        return record.model

    def tell_positions(self) -> None:
        now = time.monotonic()
        for record in self._records.values():
            for position, ticket in enumerate(record.tickets):
                status = record.queue_status(position, now)
                if status != ticket.status:
                    ticket.status = status
                    ticket.reply.send(status)

    def changed(self, report: ModelStateChanged) -> None:
        record = self._records[report.model.key]
        if record.model is not report.model:
            return
        record.progress, record.hung = report.progress, report.hung
        if report.state is ModelState.ERROR:
            self._failed(record, report)
        elif report.state is ModelState.READY and record.state is ModelState.LOADING:
            record.problem = None
            record.move(ModelState.READY, time.monotonic())
        elif report.state is ModelState.IDLE and record.state is ModelState.UNLOADING:
            record.move(ModelState.IDLE, time.monotonic())
            # Who had a turn waits behind those who have not, however old its own waiting requests are.
            record.waiting_since = time.monotonic()

    def _failed(self, record: ModelRecord, report: ModelStateChanged) -> None:
        now = time.monotonic()
        problem = report.problem or model_crashed(record.key.model)
        record.problem = problem
        if record.state is not ModelState.ERROR:
            record.move(ModelState.ERROR, now)
            if problem.status in (500, 503):
                record.intensity.failed(now)
        refusal = record.refusal(now)
        if report.in_load or refusal is not None:
            for ticket in record.tickets.clear():
                ticket.fail(problem if report.in_load else refusal or problem, record.log)

    def exited(self, model: Model, crashed: bool) -> None:
        record = self._records[model.key]
        if record.model is model:
            record.model = None
            if crashed:
                problem = model_crashed(model.key.model)
                self._failed(record, ModelStateChanged(model, ModelState.ERROR, problem, in_load=True))

    def ticket_closed(self, record: ModelRecord, ticket: Ticket) -> None:
        """Remove a request that waits no longer because its reply is closed, or has ended with a problem."""
        if record.tickets.remove(ticket) and not ticket.reply.ended:
            ticket.log_cancelled(record.log)

    def lease_closed(self, record: ModelRecord, lease: Lease) -> None:
        granted = record.leases.pop(lease, None)
        if granted is not None:
            record.waiting_time.observe(time.monotonic() - granted)

    def cut(self, problem: Problem) -> None:
        for record in self._records.values():
            for ticket in record.tickets.clear():
                ticket.fail(problem, record.log)
            if record.model is not None:
                record.model.cut(problem)

    def advance(self) -> None:
        """Decide, then act: after every report, until nothing more follows from it."""
        now = time.monotonic()
        for record in self._records.values():
            self._grant(record, now)
        decided = plan([record.resident(now) for record in self._records.values()], self._max_models)
        for record in self._records.values():
            record.closed = record.key in decided.closed or record.key in decided.unload
            self._grant(record, now)
        for key in decided.unload:
            self._unload(self._records[key], now)
        for key in decided.load:
            self._load(self._records[key], now)
        for key in decided.wait:
            if self._records[key].state is not ModelState.WAITING:
                self._records[key].move(ModelState.WAITING, now)
        for record in self._records.values():
            self._let_go(record, now)
        self._tell_newcomers(now)

    def _grant(self, record: ModelRecord, now: float) -> None:
        while record.has_free_slot and record.model is not None:
            ticket = record.tickets.next()
            if ticket is None:
                return
            lease = Lease(record.key, record.model.ref, partial(self._give_back, record))
            record.leases[lease] = record.last_used = now
            ticket.reply.send(Granted(lease))

    def _load(self, record: ModelRecord, now: float) -> None:
        record.progress = 0.0
        record.move(ModelState.LOADING, now)
        self._started(record).load()

    def _unload(self, record: ModelRecord, now: float) -> None:
        record.move(ModelState.UNLOADING, now)
        if record.model is not None:
            record.model.unload()

    def _let_go(self, record: ModelRecord, now: float) -> None:
        """An actor whose weights are gone and which nobody waits for is stopped."""
        if record.tickets or record.hung or record.leases:
            return
        if record.state is ModelState.WAITING:
            record.move(ModelState.IDLE, now)
        if record.state in (ModelState.IDLE, ModelState.ERROR) and record.model is not None:
            record.model.stop()
            record.model = None

    def _tell_newcomers(self, now: float) -> None:
        for record in self._records.values():
            for position, ticket in enumerate(record.tickets):
                if ticket.status is None:
                    ticket.status = record.queue_status(position, now)
                    ticket.reply.send(ticket.status)
