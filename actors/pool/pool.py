"""The pool actor: supervises models, loads them on first use, grants leases, and evicts models."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines
from greenroom.actors.model.model import Model
from greenroom.actors.pool.catalog_lookups import CatalogLookups
from greenroom.actors.pool.lease import Lease
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.model_table import Callbacks, ModelTable
from greenroom.actors.pool.pooled_model import MakeModel, PooledModel
from greenroom.actors.pool.tickets import Ticket
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, adapter_not_found, draining
from greenroom.schemas.protocols.model_protocol import ModelReport
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribeModel,
    DescribePool,
    Drain,
    Drained,
    FindModel,
    ListModels,
    ModelCard,
    ModelDescriptions,
    ModelList,
    PoolMessage,
    PoolStatus,
    QueryPrompt,
)
from greenroom.schemas.settings.settings import Settings

_TICK = 0.5
"""Interval in seconds between checks of waiting requests: their positions, and expired time slices."""

_Description = ModelList | ModelCard | ModelDescriptions


@attrs.frozen(eq=False)
class _LookedUp:
    message: Acquire | QueryPrompt
    reply: Reply
    found: ModelKey | Problem


@attrs.frozen(eq=False)
class _Described:
    reply: Reply
    answer: _Description | Problem


@attrs.frozen(eq=False)
class _TicketClosed:
    record: ModelRecord
    ticket: Ticket


@attrs.frozen(eq=False)
class _LeaseClosed:
    record: ModelRecord
    lease: Lease


@attrs.frozen(eq=False)
class _Reported:
    model: PooledModel
    report: ModelReport


@attrs.frozen(eq=False)
class _Crashed:
    model: PooledModel


@attrs.frozen(eq=False)
class _Exited:
    model: PooledModel


@attrs.frozen
class _Tick:
    """The periodic report while requests wait."""


@attrs.frozen
class _FailAll:
    """The command to fail all requests that are left."""


@attrs.frozen
class _DeviceLost:
    """The command to stop loading models."""

    problem: Problem


class Pool:
    """The actor that receives all requests for models.

    Args:
        workers: Worker threads for the models.
        make: Function that creates the actor of a model; None for models that run here, on these workers.
    """

    def __init__(
        self, settings: Settings, workers: Workers, engines: Engines, make: MakeModel | None = None
    ) -> None:
        self._inbox: Inbox[PoolMessage] = Inbox()
        self.ref: Ref[PoolMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._workers = workers
        self._make = make or partial(_make_local, settings.max_batch, engines, workers)
        self._log = get_logger().bind(actor="pool")
        callbacks = Callbacks(
            self._start_model, self._ticket_closed, self._lease_closed, engines.available_memory
        )
        self._models = ModelTable(settings, callbacks)
        self._lookups = CatalogLookups(engines, self._log)
        self._looking_up = 0
        self._nursery: trio.Nursery
        self._ticking = False
        self._draining: Problem | None = None
        """The problem returned to new requests once none are accepted."""
        self._lost: Problem | None = None
        self._drain_replies: list[Reply] = []

    def fail_all(self) -> None:
        """Fail every request that is left when the shutdown time is over."""
        self._control.send(_FailAll())

    def lose_device(self, problem: Problem) -> None:
        """Reject new requests, and fail those that wait for a load; ready models may still answer."""
        self._control.send(_DeviceLost(problem))

    async def run(self) -> None:
        """Receive messages until cancelled."""
        self._log.debug("started")
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
            case _LookedUp(message, reply, found):
                self._looking_up -= 1
                self._admit(found, message, reply)
            case _Described(reply, Problem() as problem):
                reply.fail(problem)
            case _Described(reply, answer):
                reply.send(answer)
            case _TicketClosed(record, ticket):
                self._models.close_ticket(record, ticket)
            case _LeaseClosed(record, lease):
                self._models.close_lease(record, lease)
            case _Reported(model, report):
                self._models.record(model, report)
            case _Crashed(model):
                self._models.record_crash(model)
            case _Exited(model):
                self._models.record_exit(model)
            case _FailAll():
                self._models.fail_all(self._lost or draining())
            case _DeviceLost(problem):
                self._draining = self._lost = problem
            case _Tick():
                self._ticking = False
                self._models.send_queue_statuses()
        if self._lost is not None:
            self._models.fail_unloaded(self._lost)
        self._models.advance()
        self._tick()
        self._answer_drain()

    def _receive_message(self, message: PoolMessage, reply: Reply) -> None:
        self._log.debug("received", message=type(message).__name__)
        match message:
            case Acquire() | QueryPrompt():
                self._acquire(message, reply)
            case ListModels():
                self._nursery.start_soon(self._describe, reply, self._lookups.list)
            case DescribeModel(name):
                self._nursery.start_soon(self._describe, reply, partial(self._lookups.describe, name))
            case FindModel(name):
                self._nursery.start_soon(self._describe, reply, partial(self._lookups.card, name))
            case DescribePool():
                statuses = self._models.statuses(self._workers.hung())
                reply.send(PoolStatus(statuses, self._draining))
            case Drain():
                if self._draining is None:
                    self._log.info("draining")
                    self._draining = draining()
                self._drain_replies.append(reply)

    def _acquire(self, message: Acquire | QueryPrompt, reply: Reply) -> None:
        if self._draining is not None:
            reply.fail(self._draining)
        elif (known := self._lookups.known(message.key.model)) is not None:
            self._admit(known, message, reply)
        else:
            self._looking_up += 1
            self._nursery.start_soon(self._look_up, message, reply)

    def _admit(self, found: ModelKey | Problem, message: Acquire | QueryPrompt, reply: Reply) -> None:
        if isinstance(found, Problem):
            reply.fail(found)
        elif message.adapter is not None:
            reply.fail(adapter_not_found(message.adapter, found.model))
        elif isinstance(message, QueryPrompt):
            self._models.query_prompt(found, message.request_id, reply)
        else:
            self._models.admit(found, message.request_id, reply, message.choices)

    async def _look_up(self, message: Acquire | QueryPrompt, reply: Reply) -> None:
        found = await self._lookups.find(message.key.model)
        self._control.send(_LookedUp(message, reply, found))

    async def _describe(self, reply: Reply, look_up: Callable[[], Awaitable[_Description | Problem]]) -> None:
        self._control.send(_Described(reply, await look_up()))

    def _start_model(self, key: ModelKey, state: ModelState) -> PooledModel:
        def report(told: ModelReport) -> None:
            self._control.send(_Reported(model, told))

        model = self._make(key, state, report)
        self._nursery.start_soon(self._supervise, model)
        return model

    async def _supervise(self, model: PooledModel) -> None:
        try:
            await model.run()
        except Exception:
            self._log.exception("actor crashed", model=str(model.key))
            self._control.send(_Crashed(model))
            await model.wait_released()
        self._control.send(_Exited(model))

    def _tick(self) -> None:
        if self._models.waiting and not self._ticking:
            self._ticking = True
            self._nursery.start_soon(self._clock)

    async def _clock(self) -> None:
        await trio.sleep(_TICK)
        self._control.send(_Tick())

    def _answer_drain(self) -> None:
        if self._draining is not None and not (self._looking_up or self._models.busy):
            replies, self._drain_replies = self._drain_replies, []
            for reply in replies:
                reply.send(Drained())
                reply.end()

    def _ticket_closed(self, record: ModelRecord, ticket: Ticket) -> None:
        self._control.send(_TicketClosed(record, ticket))

    def _lease_closed(self, record: ModelRecord, lease: Lease) -> None:
        self._control.send(_LeaseClosed(record, lease))

    def _end(self) -> None:
        self._models.fail_all(draining())
        for reply in self._drain_replies:
            reply.end()
        self._control.close(draining())
        self._log.debug("stopped")


def _make_local(
    slots: int,
    engines: Engines,
    workers: Workers,
    key: ModelKey,
    state: ModelState,
    report: Callable[[ModelReport], None],
) -> Model:
    return Model(key, engines, workers, report, state=state, slots=slots)
