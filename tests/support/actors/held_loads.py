"""Requests that wait for a model whose load is held up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from greenroom.actors.system import System
from greenroom.schemas.events.events import Failed, Finished
from greenroom.testing import Faults
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
)


@asynccontextmanager
async def waiting_for_load(
    system: System, faults: Faults, model: str
) -> AsyncIterator[list[Finished | Failed]]:
    """Ask a model, whose load the block's end lets go on; then the list holds the answer's end.

    Args:
        faults: Faults with a gate, of the system's engines.
    """
    ends = list[Finished | Failed]()

    async def ask() -> None:
        ends.append((await answer(system.pool, model))[1])

    async def loading() -> bool:
        return bool(faults.loads)

    assert faults.gate is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await eventually(loading)
        yield ends
        faults.gate.set()
