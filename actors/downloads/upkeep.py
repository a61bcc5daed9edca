"""Deletion of a model's files after it was unloaded, and the probe of a model that was just fetched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from greenroom.actors.core.ref import ActorStopped, Ref, answer_or_failed, ask_actor
from greenroom.actors.engines.engines import Engines
from greenroom.engine.catalog.hub.hub_cache import mark_for_probe, unmark
from greenroom.engine.catalog.hub.removal import Removal, plan_listed_removal
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError, draining
from greenroom.schemas.protocols.download_protocol import ModelDeleted
from greenroom.schemas.protocols.pool_protocol import (
    DescribeModel,
    DescribePool,
    LoadPlan,
    ModelDescriptions,
    ModelNews,
    ModelUnloaded,
    PlanLoad,
    PoolMessage,
    PoolStatus,
    Probed,
    ProbeModel,
    UnloadModel,
    WatchModels,
)
from greenroom.schemas.settings.settings import Settings

_PROBE_SECONDS = 5.0  # Time that a probe has to let go of its model: at most a step of its engine

_LOOK_SECONDS = 0.02

log = get_logger(actor="downloads")


async def delete_model(
    name: str, pool: Ref[PoolMessage], engines: Engines, probes: PulledProbes
) -> ModelDeleted:
    """Unload a model and delete its files; this stops a probe of it that nobody has asked for.

    Raises:
        ProblemError: 404 if there is none, 403 if its folder is not one to delete from, 409 if requests use
            it, it is pinned, or a process fetches it, 503 if the disk refuses.
    """
    removal, listed = await trio.to_thread.run_sync(partial(_plan, name, engines))
    key = ModelKey(removal.model)
    with await trio.to_thread.run_sync(removal.claim):
        # A probe marks and unmarks the folder, which fails its removal.
        async with probes.held_off(removal.model) as gives_way:
            if listed:
                await _check_unused(pool, key, _PROBE_SECONDS if gives_way else 0.0)
                await ask_actor(pool, UnloadModel(key, spares_pinned=True, reason="deleted"), ModelUnloaded)
                await _check_unused(pool, key)
            try:
                with trio.CancelScope(shield=True):
                    freed = await trio.to_thread.run_sync(removal.remove)
            finally:
                engines.names.rescan()
    log.info("model deleted", model=removal.model, folder=str(removal.folder), freed_bytes=freed)
    return ModelDeleted(removal.model, freed)


def find_removal(name: str, settings: Settings) -> Removal:
    """Return the files of a model that its deletion would delete, without a server; see `delete_model`.
    Raises ProblemError: there are none, or they lie in no folder from which models are deleted.
    """
    from greenroom.engine.catalog.catalog import Catalog

    found = Catalog.of(settings).find(name.partition("@")[0])
    return plan_listed_removal(name, found, settings.model_dir)


def _plan(name: str, engines: Engines) -> tuple[Removal, bool]:
    """Return the model that is to be deleted, and whether the catalog lists it. Raises ProblemError: see
    `delete_model`.
    """
    found = engines.names.find(name.partition("@")[0])
    # The base of an adapter stays loaded.
    listed = not isinstance(found, Problem) and found.folder is not None and found.adapter is None
    return plan_listed_removal(name, found, engines.names.model_dirs), listed


async def _check_unused(pool: Ref[PoolMessage], key: ModelKey, patience: float = 0.0) -> None:
    """Refuse the deletion while requests use the model. `patience`: seconds to wait for these requests to
    end. Raises ProblemError (409 `model_in_use`).
    """
    deadline = trio.current_time() + patience
    while used := await _uses(pool, key):
        if trio.current_time() < deadline:
            await trio.sleep(_LOOK_SECONDS)
            continue
        detail = f"{used} requests use '{key}': it is not deleted before they have ended."
        raise ProblemError(Problem(409, "model_in_use", detail, "model", retry_after=10))


async def _uses(pool: Ref[PoolMessage], key: ModelKey) -> int:
    status = await ask_actor(pool, DescribePool(), PoolStatus)
    return sum(model.leases + model.queue for model in status.models if model.key == key)


def want_probe(name: str, *, wanted: bool) -> None:
    """Mark a model, or remove its mark, so that a server probes it after its first load. `name`: `OWNER/NAME`
    or `OWNER/NAME@REVISION`.
    """
    (mark_for_probe if wanted else unmark)(name.partition("@")[0])


class PulledProbes:
    """Runs the probes of models that were pulled."""

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
            if known.record is None or known.need is None or known.is_adapter:
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
