"""The pool's decisions, repeated from the events in its log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
import trio

from greenroom.actors.pool.eviction_policy import plan
from greenroom.actors.pool.pool_events import Decided, PoolEvent, apply
from greenroom.actors.pool.pool_state import PoolState, Residency
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, TextDelta
from greenroom.schemas.problems import NoRoomError
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    until,
)
from greenroom.tests.support.models.load_sizes import needs

NAMES = ("qwen3", "llama", "mistral")


def replay(events: Iterable[PoolEvent], start: PoolState) -> list[Decided]:
    """Apply events to a state; check that each decision follows from those before it."""
    present, decisions = start, list[Decided]()
    for event in events:
        if isinstance(event, Decided):
            assert plan(present) == event.plan
            decisions.append(event)
            for key in event.plan.unload:
                leaving = present.models[key]
                assert not leaving.pinned
                assert leaving.suspendable or not leaving.leases
        present = apply(present, event)
        if present.limit is not None:
            assert sum(model.nbytes for model in present.models.values()) <= present.limit
    assert all(model.leases == model.tickets == 0 for model in present.models.values())
    return decisions


def events_in(logs: Iterable[Any]) -> list[PoolEvent]:
    return [line["change"] for line in logs if line["event"] == "pool changed"]


@pytest.mark.deep
async def test_the_decisions_follow_from_the_events_in_the_log(models: tuple[str, ...]) -> None:
    sizes = sorted(map(needs, models))
    room = sizes[-1] + sizes[-2]  # for two of three
    settings = Settings(models=models, max_batch=2, memory_bytes=room, shutdown_timeout=60.0)
    chance, ends = random.Random(7), list[Finished | Failed]()
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings) as system:

            async def use(number: int) -> None:
                for turn in range(6):
                    name, request_id = chance.choice(NAMES), f"{number}-{turn}"
                    if chance.random() < 0.3:
                        with generate(system.pool, name, request_id, max_tokens=2_000) as gone:
                            with trio.move_on_after(chance.random() / 10):
                                await until(gone, TextDelta)
                    else:
                        ends.append((await answer(system.pool, name, request_id))[1])

            async with trio.open_nursery() as nursery:
                for number in range(4):
                    nursery.start_soon(use, number)

            async def nothing_is_left() -> bool:
                described = await system.pool.ask(DescribePool(), PoolStatus)
                assert isinstance(described, PoolStatus)
                return all(model.running == model.waiting == 0 for model in described.models)

            await eventually(nothing_is_left)
    assert all(isinstance(end, Finished) for end in ends)
    decisions = replay(events_in(logs), PoolState(limit=room))
    assert any(decided.plan.unload for decided in decisions)


async def test_a_load_that_the_account_refuses_is_tried_again_and_no_error(
    tiny_model: Callable[..., Path],
) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    faults = Faults(load={"qwen3": NoRoomError("qwen3", 1000, 999)})
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
            with generate(system.pool, "qwen3") as generation:
                await until(generation, Admitted)

                async def refused() -> bool:
                    return len(faults.loads) >= 2

                await eventually(refused)
                faults.load.clear()
                assert isinstance((await until(generation, Finished))[-1], Finished)
    moves = [line["state"] for line in logs if line["event"] == "state changed"]
    assert set(moves[:-3]) == {"loading", "waiting"}
    assert "error" not in moves
    ready = [model for model in replayed_states(events_in(logs)) if model.shortfall]
    assert max(model.shortfall for model in ready) >= 2  # more room is asked for each time


def replayed_states(events: Iterable[PoolEvent]) -> list[Any]:
    present, seen = PoolState(), list[Any]()
    for event in events:
        present = apply(present, event)
        seen += present.models.values()
    assert all(attrs.evolve(model, residency=Residency.NONE).nbytes == 0 for model in seen)
    return seen
