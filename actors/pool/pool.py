"""The pool actor: supervises the models, loads them on first use, grants leases, keeps what fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import structlog
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines import Engines
from greenroom.actors.model.control import ModelStateChanged
from greenroom.actors.model.model import Model
from greenroom.actors.pool.lease import Lease
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.model_table import ModelTable
from greenroom.actors.pool.tickets import Ticket
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
from greenroom.schemas.problems import Problem, draining, internal_error, model_not_found
from greenroom.schemas.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.catalog.catalog import CatalogEntry

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

    def __init__(self, settings: Settings, workers: Workers, engines: Engines, silence: float) -> None:
        self._inbox: Inbox[PoolMessage] = Inbox()
        self.ref: Ref[PoolMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._workers = workers
        self._engines = engines
        self._silence = silence
        self._models = ModelTable(settings, self._start_model, self._waiter_left, self._give_back)
        self._nursery: trio.Nursery
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
                self._nursery = nursery
                nursery.start_soon(self._inbox.forward, self._control)
                while True:
                    self._receive(await self._control.receive())
        finally:
            self._end()

    def _receive(self, report: Any) -> None:
        match report:
            case Envelope(message, reply):
                self._receive_message(message, reply or Reply())
            case _LookedUp():
                self._looked_up(report)
            case _Listed(reply, models):
                if models is None:
                    reply.fail(internal_error())
                else:
                    reply.send(models)
            case _WaiterLeft(record, ticket):
                self._models.ticket_closed(record, ticket)
            case _LeaseClosed(record, lease):
                self._models.lease_closed(record, lease)
            case ModelStateChanged():
                self._models.changed(report)
            case _Exited(model, crashed):
                self._models.exited(model, crashed)
            case _Cut():
                self._models.cut(draining())
            case _Tick():
                self._ticking = False
                self._models.tell_positions()
        self._models.advance()
        self._tick()
        self._answer_drain()

    def _receive_message(self, message: PoolMessage, reply: Reply) -> None:
        self._log.debug("received", message=type(message).__name__)
        match message:
            case Acquire():
                self._acquire(message, reply)
            case ListModels():
                self._nursery.start_soon(self._list, reply)
            case DescribePool():
                reply.send(PoolStatus(self._models.statuses(), self._draining))
            case Drain():
                if not self._draining:
                    self._log.info("draining")
                self._draining = True
                self._drain_replies.append(reply)

    # Finding

    def _acquire(self, message: Acquire, reply: Reply) -> None:
        known = self._names.get(message.key.model)
        if self._draining:
            reply.fail(draining())
        elif message.key.adapter is not None:
            reply.fail(model_not_found(str(message.key)))
        elif known is not None:
            self._models.admit(known, message.request_id, reply)
        else:
            self._looking_up += 1
            self._nursery.start_soon(self._look_up, message, reply)

    async def _look_up(self, message: Acquire, reply: Reply) -> None:
        # Names are looked up on disk, so not in the receive loop.
        try:
            find = partial(self._engines.find, message.key.model)
            found = await trio.to_thread.run_sync(find, abandon_on_cancel=True, limiter=self._lookups)
        except Exception:
            self._log.exception("lookup failed", model=message.key.model)
            found = internal_error()
        self._control.send(_LookedUp(message, reply, found))

    def _looked_up(self, report: _LookedUp) -> None:
        self._looking_up -= 1
        if isinstance(report.found, Problem):
            report.reply.fail(report.found)
            return
        key = self._names[report.message.key.model] = ModelKey(report.found.id)
        self._models.admit(key, report.message.request_id, report.reply)

    async def _list(self, reply: Reply) -> None:
        models: ModelList | None = None
        try:
            cards = await trio.to_thread.run_sync(
                self._engines.cards, abandon_on_cancel=True, limiter=self._lookups
            )
            models = ModelList(cards)
        except Exception:
            self._log.exception("listing failed")
        self._control.send(_Listed(reply, models))

    # Supervising

    def _start_model(self, key: ModelKey) -> Model:
        model = Model(
            key,
            self._engines,
            self._workers,
            self._control.send,
            silence=self._silence,
        )
        self._nursery.start_soon(self._supervise, model)
        return model

    async def _supervise(self, model: Model) -> None:
        crashed = False
        try:
            await model.run()
        except Exception:
            crashed = True
            self._log.exception("actor crashed", model=str(model.key))
        self._control.send(_Exited(model, crashed))

    def _tick(self) -> None:
        if self._models.waiting and not self._ticking:
            self._ticking = True
            self._nursery.start_soon(self._clock)

    async def _clock(self) -> None:
        await trio.sleep(_TICK)
        self._control.send(_Tick())

    def _answer_drain(self) -> None:
        if self._draining and not (self._looking_up or self._models.busy):
            replies, self._drain_replies = self._drain_replies, []
            for reply in replies:
                reply.send(Drained())
                reply.end()

    def _waiter_left(self, record: ModelRecord, ticket: Ticket) -> None:
        self._control.send(_WaiterLeft(record, ticket))

    def _give_back(self, record: ModelRecord, lease: Lease) -> None:
        self._control.send(_LeaseClosed(record, lease))

    def _end(self) -> None:
        self._models.cut(draining())
        for reply in self._drain_replies:
            reply.end()
        self._control.close(draining())
        self._log.info("stopped")
