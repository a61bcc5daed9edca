"""The pool actor: supervises the models, loads them on first use, grants leases, keeps what fits."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import structlog
import trio

from greenroom.actors.lease import Found, Granted, Lease
from greenroom.actors.loading import Loading
from greenroom.actors.model import Changed, Model
from greenroom.actors.model_record import ModelRecord
from greenroom.actors.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.reply import Reply
from greenroom.actors.residency import plan
from greenroom.actors.tickets import Ticket, TicketQueue
from greenroom.actors.waiting_time import WaitingTime
from greenroom.actors.worker import Workers
from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import (
    Acquire,
    DescribePool,
    Drain,
    Drained,
    ListModels,
    ModelList,
    PoolMessage,
    PoolStatus,
)
from greenroom.schemas.problems import (
    Problem,
    draining,
    internal_error,
    model_crashed,
    model_not_found,
    queue_full,
)
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.catalog import CatalogEntry

_TICK = 0.5
"""Seconds between two looks at those who wait: their positions, and whose turn is over."""


@attrs.frozen(eq=False)
class _LookedUp:
    message: Acquire
    reply: Reply
    found: CatalogEntry | Problem


@attrs.frozen(eq=False)
class _Listed:
    reply: Reply
    models: ModelList | None


@attrs.frozen(eq=False)
class _WaiterLeft:
    record: ModelRecord
    ticket: Ticket


@attrs.frozen(eq=False)
class _LeaseClosed:
    record: ModelRecord
    lease: Lease


@attrs.frozen(eq=False)
class _Exited:
    model: Model
    crashed: bool


@attrs.frozen
class _Tick:
    """Time has passed while somebody waits."""


@attrs.frozen
class _Cut:
    """Fail whatever is left."""


class Pool:
    """Root of all requests.

    Args:
        workers: Threads for the models.
        silence: Seconds without a sign of life after which a model's worker counts as hung.
    """

    def __init__(self, settings: Settings, workers: Workers, loading: Loading, silence: float) -> None:
        self._inbox: Inbox[PoolMessage] = Inbox()
        self.ref: Ref[PoolMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._settings = settings
        self._workers = workers
        self._loading = loading
        self._silence = silence
        self._records: dict[ModelKey, ModelRecord] = {}
        self._names: dict[str, ModelKey] = {}
        self._looking_up = 0
        self._lookups = trio.CapacityLimiter(2)
        self._ticking = False
        self._draining = False
        self._drain_replies: list[Reply] = []
        self._log = structlog.get_logger().bind(actor="pool")

    def cut(self) -> None:
        """Fail every request that is left, because the grace time is over."""
        self._control.send(_Cut())

    async def run(self) -> None:
        """Receive until cancelled."""
        self._log.info("started")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                while True:
                    self._receive(await self._control.receive(), nursery)
        finally:
            self._end()

    def _receive(self, report: Any, nursery: trio.Nursery) -> None:
        match report:
            case Envelope(message, reply):
                self._receive_message(message, reply or Reply(), nursery)
            case _LookedUp(message, reply, found):
                self._looked_up(message, reply, found, nursery)
            case _Listed(reply, models):
                if models is None:
                    reply.fail(internal_error())
                else:
                    reply.send(models)
            case _WaiterLeft(record, ticket):
                record.tickets.remove(ticket)
            case _LeaseClosed(record, lease):
                self._lease_closed(record, lease)
            case Changed():
                self._changed(report)
            case _Exited(model, crashed):
                self._exited(model, crashed)
            case _Cut():
                self._cut(draining())
            case _Tick():
                self._ticking = False
                self._tell_positions()
        self._advance(nursery)

    def _receive_message(self, message: PoolMessage, reply: Reply, nursery: trio.Nursery) -> None:
        self._log.debug("received", message=type(message).__name__)
        match message:
            case Acquire():
                self._acquire(message, reply, nursery)
            case ListModels():
                nursery.start_soon(self._list, reply)
            case DescribePool():
                models = tuple(record.status() for record in self._records.values())
                reply.send(PoolStatus(models, self._draining))
            case Drain():
                if not self._draining:
                    self._log.info("draining")
                self._draining = True
                self._drain_replies.append(reply)

    # Finding

    def _acquire(self, message: Acquire, reply: Reply, nursery: trio.Nursery) -> None:
        known = self._names.get(message.key.model)
        if self._draining:
            reply.fail(draining())
        elif message.key.adapter is not None:
            reply.fail(model_not_found(str(message.key)))
        elif known is not None:
            self._admit(self._records[known], message, reply, nursery)
        else:
            self._looking_up += 1
            nursery.start_soon(self._look_up, message, reply)

    async def _look_up(self, message: Acquire, reply: Reply) -> None:
        # Names are looked up on disk, so not in the receive loop.
        try:
            find = partial(self._loading.find, message.key.model)
            found = await trio.to_thread.run_sync(find, abandon_on_cancel=True, limiter=self._lookups)
        except Exception:
            self._log.exception("lookup failed", model=message.key.model)
            found = internal_error()
        self._control.send(_LookedUp(message, reply, found))

    def _looked_up(
        self, message: Acquire, reply: Reply, found: CatalogEntry | Problem, nursery: trio.Nursery
    ) -> None:
        self._looking_up -= 1
        if isinstance(found, Problem):
            reply.fail(found)
            return
        key = ModelKey(found.id)
        if key not in self._records:
            self._records[key] = ModelRecord(
                key,
                found,
                TicketQueue(),
                slots=self._settings.max_batch,
                waiting_time=WaitingTime(self._settings.max_batch),
            )
        self._names[message.key.model] = key
        self._admit(self._records[key], message, reply, nursery)

    async def _list(self, reply: Reply) -> None:
        models: ModelList | None = None
        try:
            cards = await trio.to_thread.run_sync(
                self._loading.cards, abandon_on_cancel=True, limiter=self._lookups
            )
            models = ModelList(cards)
        except Exception:
            self._log.exception("listing failed")
        self._control.send(_Listed(reply, models))

    # Waiting

    def _admit(self, record: ModelRecord, message: Acquire, reply: Reply, nursery: trio.Nursery) -> None:
        now = time.monotonic()
        refusal = record.refusal(now)
        if refusal is None and len(record.tickets) >= self._settings.max_queue + record.free_slots:
            refusal = queue_full(record.key.model, len(record.tickets))
        if refusal is not None:
            reply.fail(refusal)
            return
        if reply.closed:
            return
        model = record.model or self._start_model(record, nursery)
        reply.send(Found(record.key, model.ref))
        ticket = Ticket(reply, message.request_id)
        if not record.tickets:
            record.waiting_since = now
        record.tickets.add(ticket)
        reply.watch(lambda: self._control.send(_WaiterLeft(record, ticket)))

    def _start_model(self, record: ModelRecord, nursery: trio.Nursery) -> Model:
        model = Model(
            record.key,
            record.entry,
            self._loading,
            self._workers,
            self._control.send,
            settings_overrides=_overrides(self._settings),
            silence=self._silence,
        )
        record.model = model
        nursery.start_soon(self._supervise, model)
        return model

    async def _supervise(self, model: Model) -> None:
        crashed = False
        try:
            await model.run()
        except Exception:
            crashed = True
            self._log.exception("actor crashed", model=str(model.key))
        self._control.send(_Exited(model, crashed))

    def _tell_positions(self) -> None:
        now = time.monotonic()
        for record in self._records.values():
            for position, ticket in enumerate(record.tickets):
                status = record.queue_status(position, now)
                if status != ticket.told:
                    ticket.told = status
                    ticket.reply.send(status)

    # What models and requests report

    def _changed(self, report: Changed) -> None:
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

    def _failed(self, record: ModelRecord, report: Changed) -> None:
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
                ticket.reply.fail(problem if report.in_load else refusal or problem)

    def _exited(self, model: Model, crashed: bool) -> None:
        record = self._records[model.key]
        if record.model is model:
            record.model = None
            if crashed:
                problem = model_crashed(model.key.model)
                self._failed(record, Changed(model, ModelState.ERROR, problem, in_load=True))

    def _lease_closed(self, record: ModelRecord, lease: Lease) -> None:
        granted = record.leases.pop(lease, None)
        if granted is not None:
            record.waiting_time.observe(time.monotonic() - granted)

    def _cut(self, problem: Problem) -> None:
        for record in self._records.values():
            for ticket in record.tickets.clear():
                ticket.reply.fail(problem)
            if record.model is not None:
                record.model.cut(problem)

    # What follows

    def _advance(self, nursery: trio.Nursery) -> None:
        """Decide, then act: after every report, until nothing more follows from it."""
        now = time.monotonic()
        for record in self._records.values():
            self._grant(record, now)
        decided = plan([record.resident(now) for record in self._records.values()], self._settings.max_models)
        for record in self._records.values():
            record.closed = record.key in decided.closed or record.key in decided.unload
            self._grant(record, now)
        for key in decided.unload:
            self._unload(self._records[key], now)
        for key in decided.load:
            self._load(self._records[key], now, nursery)
        for key in decided.wait:
            if self._records[key].state is not ModelState.WAITING:
                self._records[key].move(ModelState.WAITING, now)
        for record in self._records.values():
            self._let_go(record, now)
        self._tell_newcomers(now)
        self._tick(nursery)
        self._answer_drain()

    def _grant(self, record: ModelRecord, now: float) -> None:
        while record.has_free_slot and record.model is not None:
            ticket = record.tickets.next()
            if ticket is None:
                return
            give_back: Callable[[Lease], None] = partial(self._give_back, record)
            lease = Lease(record.key, record.model.ref, give_back)
            record.leases[lease] = record.last_used = now
            ticket.reply.send(Granted(lease))

    def _give_back(self, record: ModelRecord, lease: Lease) -> None:
        self._control.send(_LeaseClosed(record, lease))

    def _load(self, record: ModelRecord, now: float, nursery: trio.Nursery) -> None:
        model = record.model or self._start_model(record, nursery)
        record.progress = 0.0
        record.move(ModelState.LOADING, now)
        model.load()

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
                if ticket.told is None:
                    ticket.told = record.queue_status(position, now)
                    ticket.reply.send(ticket.told)

    def _tick(self, nursery: trio.Nursery) -> None:
        if not self._ticking and any(record.tickets for record in self._records.values()):
            self._ticking = True
            nursery.start_soon(self._clock)

    async def _clock(self) -> None:
        await trio.sleep(_TICK)
        self._control.send(_Tick())

    def _answer_drain(self) -> None:
        busy = self._looking_up or any(r.leases or r.tickets for r in self._records.values())
        if self._draining and not busy:
            replies, self._drain_replies = self._drain_replies, []
            for reply in replies:
                reply.send(Drained())
                reply.end()

    def _end(self) -> None:
        for record in self._records.values():
            for ticket in record.tickets.clear():
                ticket.reply.fail(draining())
        for reply in self._drain_replies:
            reply.end()
        self._control.close(draining())
        self._log.info("stopped")


def _overrides(settings: Settings) -> dict[str, Any]:
    """The generation defaults that the operator has set."""
    names = [field.name for field in attrs.fields(GenerationParameters)]
    values = {name: getattr(settings, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}
