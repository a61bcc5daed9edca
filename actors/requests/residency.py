"""Restoration of the loaded models after background work that has used another one."""

from __future__ import annotations

import contextlib
from types import TracebackType

import trio

from greenroom.actors.core.ask_actor import ask_actor
from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.pool.lease import Granted
from greenroom.schemas.messages.priority import PROBE
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribePool,
    ModelStatus,
    ModelUnloaded,
    PoolMessage,
    PoolStatus,
    UnloadModel,
)

_SECONDS = 10.0
"""Longest wait for the unload when the block was cancelled or has failed."""


class ResidencyGuard:
    """Restores, at the end of a block, the models that were loaded at its start.

    Unless others use it by then, the block's model is unloaded, also one that was there before: it is opened
    anew, so that it follows what the block has found. Then models that were there before are loaded again,
    unless other requests have changed the models meanwhile. A block that fails leaves its model there.

    Args:
        key: Model that the block uses.
    """

    def __init__(self, pool: Ref[PoolMessage], key: ModelKey) -> None:
        self._pool = pool
        self._key = key
        self._before: frozenset[ModelKey] = frozenset()

    async def __aenter__(self) -> None:
        self._before = frozenset(map(_key, filter(_is_ready, await self._statuses())))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProblemError, ActorStopped):
            if error is None or self._key not in self._before:
                with trio.move_on_after(_SECONDS, shield=True):
                    await self._unload_own()
            if error is None:
                await self._reload()

    async def _unload_own(self) -> None:
        own = [status for status in await self._statuses() if status.key == self._key]
        if not any(status.running or status.waiting for status in own):
            await ask_actor(
                self._pool, UnloadModel(self._key, keeps_prefixes=True, reason="probed"), ModelUnloaded
            )

    async def _reload(self) -> None:
        ready = frozenset(map(_key, filter(_is_ready, await self._statuses())))
        if not ready <= self._before:
            return
        for key in sorted(self._before - ready, key=str):
            granted = await ask_actor(self._pool, Acquire(key, priority=PROBE), Granted)
            granted.close()

    async def _statuses(self) -> tuple[ModelStatus, ...]:
        return (await ask_actor(self._pool, DescribePool(), PoolStatus)).models


def _is_ready(status: ModelStatus) -> bool:
    return status.state is ModelState.READY


def _key(status: ModelStatus) -> ModelKey:
    return status.key
