"""Reloading of changed settings of models in a running system."""

from __future__ import annotations

import contextlib

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import Ref
from greenroom.actors.engines.engines import Engines
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import (
    DescribePool,
    PoolMessage,
    PoolStatus,
    Unloading,
    UnloadModel,
)
from greenroom.schemas.settings.reloading import opens_otherwise
from greenroom.schemas.settings.settings import Settings


async def reload_models(pool: Ref[PoolMessage], engines: Engines, settings: Settings) -> tuple[str, ...]:
    """Use changed settings of models, names and profiles from now on.

    Running requests end as they began. A model in memory whose own settings have changed leaves it once its
    leases have ended, and is opened anew for the next request after that. One that requests wait for is
    opened anew at once.

    Returns:
        Names of the models that are opened anew.
    """
    before = engines.names.settings
    await trio.to_thread.run_sync(engines.reload, settings)
    status = await ask_actor(pool, DescribePool(), PoolStatus)
    reopened: list[str] = []
    for model in status.models:
        if opens_otherwise(before, settings, model.key.model):
            with contextlib.suppress(ProblemError):  # it hangs, and answers nothing anyway
                await ask_actor(pool, UnloadModel(model.key, reopens=True, reason="reload"), Unloading)
                if model.nbytes or model.waiting:
                    reopened.append(str(model.key))
    return tuple(reopened)
