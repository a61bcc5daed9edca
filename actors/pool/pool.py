"""The pool actor: supervises models, loads them on first use, grants leases, and evicts models."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines
from greenroom.actors.engines.residences import HeldPrefixes
from greenroom.actors.model.model import Model
from greenroom.actors.pool.keep_awake import KeepAwake
from greenroom.actors.pool.lease_queue import NameFound
from greenroom.actors.pool.lookups import CatalogLookups, adapter_of, allowed_models
from greenroom.actors.pool.model_choice import Routes
from greenroom.actors.pool.model_record import MakeModel, PooledModel
from greenroom.actors.pool.model_table import Callbacks, ModelTable
from greenroom.actors.pool.pool_events import HeldReleased
from greenroom.actors.pool.residence_rules import rule_for
from greenroom.actors.remotes.remote_model import RemoteModel
from greenroom.actors.remotes.remote_servers import RemoteServers
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import (
    Problem,
    adapter_not_found,
    draining,
    internal_error,
    may_not_download,
)
from greenroom.schemas.protocols.model_protocol import ModelReport
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    AdapterChanged,
    CancelRequest,
    ChangeAdapter,
    DescribeModel,
    DescribePool,
    Drain,
    Drained,
    ListRequests,
    ModelName,
    NamedMessage,
    PinModel,
    PlanLoad,
    PoolMessage,
    PoolStatus,
    ProbeModel,
    QueryPrompt,
    UnloadModel,
    WatchModels,
)
from greenroom.schemas.settings.settings import Settings

RunProbe = Callable[[Ref[PoolMessage], ProbeModel, Reply], Awaitable[None]]
"""Function that runs a probe until the end of its reply."""


async def refuse_probe(_pool: Ref[PoolMessage], message: ProbeModel, reply: Reply) -> None:
    detail = f"'{message.name}' cannot be probed here: the findings would not be stored."
    reply.fail(Problem(501, "probe_unavailable", detail))


_TICK = 0.5
"""Interval in seconds between checks of waiting requests: their positions, and expired time slices."""


class Pool:
    """The actor that receives all requests for models.

    Args:
        make: Function that creates the actor of a model; None for models that run here, on these workers.
        probe: Function that runs a probe as a client of the pool and ends its reply; by default, refuses it.
        remotes: Models elsewhere; by default, those of no remotes.
    """

    def __init__(
        self,
        settings: Settings,
        workers: Workers,
        engines: Engines,
        make: MakeModel | None = None,
        probe: RunProbe = refuse_probe,
        left_out: Collection[str] = (),
        remotes: RemoteServers | None = None,
    ) -> None:
        self._inbox: Inbox[PoolMessage] = Inbox()
        self.ref: Ref[PoolMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._settings, self._workers, self._probe = settings, workers, probe
        self._remotes = remotes or RemoteServers(attrs.evolve(settings, local_only=True))
        self._make = make or partial(_make, settings.max_batch, engines, workers, self._remotes)
        self._log = get_logger().bind(actor="pool")
        callbacks = Callbacks(
            self._start_model,
            lambda record, ticket: self._control.send(partial(self._models.close_ticket, record, ticket)),
            lambda record, lease: self._control.send(partial(self._models.reduce_lease, record, lease)),
            engines.available_memory,
            engines.held,
            lambda key: self._nursery.start_soon(self._release_held, engines.held, key),
            lambda model: engines.abandon(model),
            engines.asked_by.__setitem__,
            lambda model: rule_for(engines.names.settings, model),
            lambda: engines.names.revision,
        )
        self._models = ModelTable(settings, callbacks)
        self._routes = Routes(settings, self._remotes, self._models.overview, self._log)
        self._expiry = Alarm(lambda: self._control.send(lambda: None))  # what is due is looked for anyway
        self._lookups = CatalogLookups(engines, self._remotes, self._log, left_out)
        self._awake = KeepAwake(settings.keep_awake)
        self._nursery: trio.Nursery
        self._looking_up, self._ticking = 0, False
        self._draining: Problem | None = None  # returned to new requests once none are accepted
        self._lost: Problem | None = None
        self._drain_replies: list[Reply] = []

    def fail_all(self) -> None:
        self._control.send(lambda: self._models.fail_all(self._lost or draining()))

    def lose_device(self, problem: Problem) -> None:
        """Reject new requests, and fail those that wait for a load; ready models may still answer."""

        def lose() -> None:
            self._draining = self._lost = problem

        self._control.send(lose)

    async def run(self) -> None:
        self._log.debug("started")
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._inbox.forward, self._control)
                nursery.start_soon(self._lookups.find_preloads, self._settings, self._report_preload)
                nursery.start_soon(self._awake.run)
                while True:
                    self._receive(await self._control.receive())
        finally:
            self._end()

    def _receive(self, received: Envelope[PoolMessage] | Callable[[], None]) -> None:
        """Answer a message, or make the change that a child reports; then decide on the new state."""
        if isinstance(received, Envelope):
            self._guard(self._receive_message, received.message, received.reply or Reply())
        else:
            received()
        if self._lost is not None:
            self._models.fail_unloaded(self._lost)
        self._models.advance()
        self._awake.set_busy(self._models.overview.busy)
        self._tick()
        self._expiry.set(self._models.overview.next_expiry, self._nursery)
        self._answer_drain()

    def _guard(self, answer: Callable[[Any, Reply], None], message: PoolMessage, reply: Reply) -> None:
        """Answer a message; a program's wrong one, such as a name that is no text, fails alone."""
        try:
            answer(message, reply)
        except Exception:
            self._log.exception("message failed", message=type(message).__name__)
            reply.fail(internal_error())

    def _receive_message(self, message: PoolMessage, reply: Reply) -> None:
        self._log.debug("received", message=type(message).__name__)
        match message:
            case Acquire() | QueryPrompt() | UnloadModel() | PinModel() | PlanLoad():
                self._acquire(message, reply)
            case DescribeModel(name):
                self._nursery.start_soon(self._describe, reply, name)
            case ChangeAdapter():
                self._nursery.start_soon(self._change_adapter, message, reply)
            case ListRequests() | CancelRequest() | WatchModels():
                self._models.overview.answer(message, reply)
            case ProbeModel():  # fails by itself while the pool drains
                self._nursery.start_soon(self._probe, self.ref, message, reply)
            case DescribePool():
                statuses = self._models.overview.statuses(self._workers.hung())
                limit, remotes = self._models.overview.limit, self._remotes.statuses()
                reply.send(PoolStatus(statuses, self._draining, limit, remotes))
            case Drain():
                if self._draining is None:
                    self._log.info("draining")
                    self._draining = draining()
                    self._models.overview.end_watches(self._draining)
                self._drain_replies.append(reply)

    def _acquire(self, message: NamedMessage, reply: Reply) -> None:
        if self._draining is not None:
            reply.fail(self._draining)
        elif (known := self._lookups.known(message)) is not None:
            self._admit(known, message, reply)
        else:
            self._looking_up += 1
            self._nursery.start_soon(self._look_up, message, reply)

    def _admit(self, found: ModelName | Problem, message: NamedMessage, reply: Reply) -> None:
        found = found if isinstance(found, Problem) else self._routes.settle(found, message)
        if isinstance(found, Problem):
            reply.fail(found)
            return
        if not found.listed and isinstance(message, Acquire | QueryPrompt) and not message.may_download:
            reply.fail(may_not_download(found.model))
            return
        key = ModelKey(found.model)
        if found.profile is not None or found.replaceable or found.adapter is not None or found.chosen:
            meaning = found.profile, found.defaults, found.replaceable, found.adapter
            reply.send(NameFound(key, *meaning, found.chosen))
        match message:
            case UnloadModel():
                self._models.unload(key, reply, message)
            case PinModel() | PlanLoad():
                self._models.overview.answer(attrs.evolve(message, key=key), reply)
            case QueryPrompt():
                self._models.query_prompt(key, reply, message, found)
            case Acquire():
                self._models.admit(key, reply, message, found)

    async def _look_up(self, message: NamedMessage, reply: Reply) -> None:
        without = message.without if isinstance(message, Acquire | QueryPrompt) else ()
        found = await self._lookups.find_allowed(
            message.key.model, without, allowed_models(message), adapter_of(message)
        )
        self._control.send(partial(self._record_lookup, found, message, reply))

    def _record_lookup(self, found: ModelName | Problem, message: NamedMessage, reply: Reply) -> None:
        self._looking_up -= 1
        self._guard(partial(self._admit, found), message, reply)

    def _report_preload(self, name: str, found: ModelName | Problem) -> None:
        self._control.send(partial(self._preload, name, found))

    def _preload(self, name: str, found: ModelName | Problem) -> None:
        if isinstance(found, Problem):
            self._log.warning("model not preloaded", model=name, detail=found.detail)
        elif self._draining is None:
            self._models.preload(ModelKey(found.model))

    async def _describe(self, reply: Reply, name: str | None) -> None:
        found = await self._lookups.describe(name)
        if isinstance(found, Problem):
            reply.fail(found)
        else:
            reply.send(found)

    async def _change_adapter(self, message: ChangeAdapter, reply: Reply) -> None:
        found = await self._lookups.change_adapter(message.name, available=message.available)
        if isinstance(found, Problem) or found.adapter is None:
            reply.fail(found if isinstance(found, Problem) else adapter_not_found(message.name, found.model))
            return
        key = ModelKey(found.model)
        if not message.available:
            self._models.drop_adapter(key, found.adapter.folder)
        reply.send(AdapterChanged(found.adapter.name, key))

    def _start_model(self, key: ModelKey, state: ModelState) -> PooledModel:
        def report(told: ModelReport) -> None:
            self._control.send(partial(self._models.record, model, told))

        model = self._make(key, state, report)
        self._nursery.start_soon(self._supervise, model)
        return model

    async def _supervise(self, model: PooledModel) -> None:
        try:
            await model.run()
        except Exception:
            self._log.exception("actor crashed", model=str(model.key))
            self._control.send(partial(self._models.record_crash, model))
            await model.wait_released()
        self._control.send(partial(self._models.record_exit, model))

    def _tick(self) -> None:
        if self._models.overview.waiting and not self._ticking:
            self._ticking = True
            self._nursery.start_soon(self._tick_later)

    async def _tick_later(self) -> None:
        def tick() -> None:
            self._ticking = False
            self._models.tick()

        await trio.sleep(_TICK)
        self._control.send(tick)

    async def _release_held(self, held: HeldPrefixes, key: ModelKey) -> None:
        released = HeldReleased(key, await trio.to_thread.run_sync(held.release))
        self._control.send(partial(self._models.overview.record_held_released, released))

    def _answer_drain(self) -> None:
        if self._draining is not None and not (self._looking_up or self._models.overview.busy):
            replies, self._drain_replies = self._drain_replies, []
            for reply in replies:
                reply.send(Drained())
                reply.end()

    def _end(self) -> None:
        self._models.fail_all(draining())
        for reply in self._drain_replies:
            reply.end()
        self._control.close(draining())
        self._inbox.fail_unanswered(draining())
        self._log.debug("stopped")


def _make(
    slots: int,
    engines: Engines,
    workers: Workers,
    remotes: RemoteServers,
    key: ModelKey,
    state: ModelState,
    report: Callable[[ModelReport], None],
) -> PooledModel:
    if (place := remotes.place(key.model)) is not None:
        return RemoteModel(key, state, report, *place, engines)
    return Model(key, engines, workers, report, state=state, slots=slots)


class Alarm:
    """An alarm that calls a function at a time; setting a later time does not postpone it. `ring`: callback
    at the time; must not block.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._at: float | None = None

    def set(self, at: float | None, nursery: trio.Nursery) -> None:
        """Ring at this time, by `time.monotonic()`, unless the alarm rings sooner; None does nothing."""
        if at is not None and (self._at is None or at < self._at):
            self._at = at
            nursery.start_soon(self._wait, at)

    async def _wait(self, at: float) -> None:
        await trio.sleep(max(0.0, at - time.monotonic()))
        if self._at == at:
            self._at = None
        self._ring()
