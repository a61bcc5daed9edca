"""Probes of models that were pulled, at once or after their first load, whenever no other request waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from greenroom.actors.core.ask_actor import answer_or_failed, ask_actor
from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.engine.catalog.hub.probe_mark import mark_for_probe, unmark
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import ProblemError, draining
from greenroom.schemas.protocols.operator_protocol import LoadPlan, ModelNews, PlanLoad, WatchModels
from greenroom.schemas.protocols.pool_protocol import DescribeModel, ModelDescriptions, PoolMessage
from greenroom.schemas.protocols.probe_protocol import Probed, ProbeModel

log = get_logger(actor="downloads")


def want_probe(name: str, *, wanted: bool) -> None:
    """Mark a model, or remove its mark, so that a server probes it after its first load.

    Args:
        name: `OWNER/NAME` or `OWNER/NAME@REVISION`.
    """
    (mark_for_probe if wanted else unmark)(name.partition("@")[0])


class PulledProbes:
    """Runs the probes of models that were pulled.

    Args:
        pool: Pool that runs each probe.
    """

    def __init__(self, pool: Ref[PoolMessage]) -> None:
        self._pool = pool
        self._running: dict[str, tuple[trio.CancelScope, trio.Event]] = {}
        self._barred: set[str] = set()

    async def probe_pulled(self, model: str) -> None:
        """Probe a model, unless it was probed before or another one would have to be unloaded.

        In the second case the probe follows the model's first load, in this process or a later one.
        """
        await self._run(model, self._mark_and_probe)

    async def follow_first_loads(self) -> None:
        """Probe the models that wait for it as soon as a request has loaded them; ends with the pool."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    news = await self._pool.stream(WatchModels())
                except ActorStopped:
                    return
                with news:
                    async for each in news:
                        match each:
                            case ModelNews(key, "load", "ready"):
                                nursery.start_soon(self._run, key.model, self._probe_marked)
                            case Failed(problem) if problem == draining():
                                return

    @asynccontextmanager
    async def held_off(self, model: str) -> AsyncIterator[bool]:
        """Stop a model's probe and let none begin until the context ends; yield whether one ran.

        The probe begins again after the model's next load. Meanwhile no probe writes into its folder.
        """
        self._barred.add(model)
        try:
            running = self._running.get(model)
            if running is not None:
                scope, ended = running
                scope.cancel()
                await ended.wait()
            yield running is not None
        finally:
            self._barred.discard(model)

    async def _run(self, model: str, work: Callable[[str], Awaitable[None]]) -> None:
        """Run a probe of a model, which `held_off` can end, unless one is running or held off."""
        if model in self._running or model in self._barred:
            return
        scope, ended = self._running[model] = trio.CancelScope(), trio.Event()
        try:
            with scope:
                await work(model)
        finally:
            del self._running[model]
            ended.set()

    async def _mark_and_probe(self, model: str) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(mark_for_probe, model)
        await self._probe_if_it_fits(model)

    async def _probe_if_it_fits(self, model: str) -> None:
        try:
            [known] = (await ask_actor(self._pool, DescribeModel(model), ModelDescriptions)).models
            if known.record is None or known.need is None:
                return
            plan = await ask_actor(self._pool, PlanLoad(ModelKey(model), known.need), LoadPlan)
        except ProblemError as error:
            log.info("model not probed", model=model, reason=error.problem.detail)
            return
        if plan.outcome not in ("loads", "loading", "ready"):
            log.info("model not probed yet", model=model, reason="it does not fit beside the loaded models")
            return
        await self._probe_marked(model)

    async def _probe_marked(self, model: str) -> None:
        """Probe a model that is marked for it, unless it was probed since.

        The mark is removed before the probe, so that a model that crashes the process does so only once.
        """
        if not await trio.to_thread.run_sync(unmark, model):
            return
        over = False
        try:
            over = await self._probe(model)
        finally:
            if not over:
                mark_for_probe(model)

    async def _probe(self, model: str) -> bool:
        """Probe a model; return False if the server was too busy for it."""
        try:
            [known] = (await ask_actor(self._pool, DescribeModel(model), ModelDescriptions)).models
            if known.record is not None and known.record.probed is not None:
                return True
        except ProblemError:
            return True
        probed = await answer_or_failed(self._pool, ProbeModel(model), Probed)
        if isinstance(probed, Failed):
            log.info("model not probed", model=model, reason=probed.problem.detail)
            return probed.problem != draining()
        return True
