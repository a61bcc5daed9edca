"""Deletion of a model's files, after it was unloaded."""

from __future__ import annotations

from functools import partial

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.downloads.probe_after_pull import PulledProbes
from greenroom.actors.engines.engines import Engines
from greenroom.engine.catalog.hub.removal import Removal, plan_listed_removal
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.download_protocol import ModelDeleted
from greenroom.schemas.protocols.pool_protocol import (
    DescribePool,
    ModelUnloaded,
    PoolMessage,
    PoolStatus,
    UnloadModel,
)
from greenroom.schemas.settings.settings import Settings

_PROBE_SECONDS = 5.0
"""Time that a probe has to let go of its model: at most a step of its engine."""

_LOOK_SECONDS = 0.02

log = get_logger(actor="downloads")


async def delete_model(
    name: str, pool: Ref[PoolMessage], engines: Engines, probes: PulledProbes
) -> ModelDeleted:
    """Unload a model and delete its files; this stops a probe of it that nobody has asked for.

    Raises:
        ProblemError: 404 if there is none, 403 if its folder is not one to delete from, 409 if requests use
            it, it is pinned, or
            a process fetches it, 503 if the disk refuses.
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

    Raises:
        ProblemError: There are none, or they lie in no folder from which models are deleted.
    """
    from greenroom.engine.catalog.catalog import Catalog

    found = Catalog.of(settings).find(name.partition("@")[0])
    return plan_listed_removal(name, found, settings.model_dir)


def _plan(name: str, engines: Engines) -> tuple[Removal, bool]:
    """Return the model that is to be deleted, and whether the catalog lists it.

    Raises:
        ProblemError: See `delete_model`.
    """
    found = engines.names.find(name.partition("@")[0])
    listed = not isinstance(found, Problem) and found.folder is not None
    return plan_listed_removal(name, found, engines.names.model_dirs), listed


async def _check_unused(pool: Ref[PoolMessage], key: ModelKey, patience: float = 0.0) -> None:
    """Refuse the deletion while requests use the model.

    Args:
        patience: Seconds to wait for these requests to end.

    Raises:
        ProblemError: 409 `model_in_use`.
    """
    deadline = trio.current_time() + patience
    while used := await _uses(pool, key):
        if trio.current_time() < deadline:
            await trio.sleep(_LOOK_SECONDS)
            continue
        detail = f"{used} requests use '{key}': it is not deleted before they have ended."
        raise ProblemError(Problem(409, "model_in_use", detail, "model", retry_after=10))


async def _uses(pool: Ref[PoolMessage], key: ModelKey) -> int:
    """Return the number of requests that use a model or wait for it."""
    status = await ask_actor(pool, DescribePool(), PoolStatus)
    return sum(model.leases + model.queue for model in status.models if model.key == key)
