"""Changed settings of models that are not in memory yet."""

from __future__ import annotations

import threading
from functools import partial

import attrs
import pytest
import trio

from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed, Finished, TextDelta
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    state,
    until,
)
from greenroom.tests.support.actors.held_loads import waiting_for_load
from greenroom.tests.support.models.load_sizes import needs

SHORT = (("llama", ModelSettings(max_context=64)),)


async def follows_the_settings(system: System) -> bool:
    _, end = await answer(system.pool, "llama", prompt="word " * 100)
    return isinstance(end, Failed) and end.problem.code == "context_length_exceeded"


async def test_a_model_that_waits_for_memory_is_opened_anew_and_keeps_its_requests(
    models: tuple[str, ...],
) -> None:
    room = max(map(needs, models[:2])) * 3 // 2
    settings = Settings(models=models[:2], memory_bytes=room, shutdown_timeout=60.0)
    faults, ends = Faults(), list[Finished | Failed]()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:

        async def ask() -> None:
            ends.append((await answer(system.pool, "llama"))[1])

        async def waits() -> bool:
            return await state(system.pool, "llama") is ModelState.WAITING

        async with trio.open_nursery() as nursery:
            with generate(system.pool, "qwen3", max_tokens=20_000) as running:
                await until(running, TextDelta)
                nursery.start_soon(ask)
                await eventually(waits)
                assert await system.reload(attrs.evolve(settings, model_settings=SHORT)) == ("llama",)
                assert isinstance((await until(running, TextDelta))[-1], TextDelta)
        assert [type(end) for end in ends] == [Finished]
        assert await follows_the_settings(system)
        assert faults.loads == ["qwen3", "llama"]


@pytest.mark.parametrize("changes", [1, 5])
async def test_settings_that_change_while_files_are_opened_hold_for_the_load(
    models: tuple[str, ...], changes: int
) -> None:
    settings, faults = Settings(models=models[:2], shutdown_timeout=60.0), Faults(hang_open=True)
    ends = list[Finished | Failed]()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:

        async def ask() -> None:
            ends.append((await answer(system.pool, "llama"))[1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.to_thread.run_sync(faults.hangs.wait)
            faults.hang_open = False
            for change in range(changes):
                table = SHORT if change % 2 == 0 else ()
                assert await system.reload(attrs.evolve(settings, model_settings=table)) == ("llama",)
            faults.release.set()
        assert [type(end) for end in ends] == [Finished]
        await eventually(partial(follows_the_settings, system), 60)
        assert {*faults.loads} == {"llama"}


async def test_settings_that_change_during_a_load_hold_after_the_requests_that_wait_for_it(
    models: tuple[str, ...],
) -> None:
    settings, faults = Settings(models=models[:2], shutdown_timeout=60.0), Faults(gate=threading.Event())
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        async with waiting_for_load(system, faults, "llama") as ends:
            assert await system.reload(attrs.evolve(settings, model_settings=SHORT)) == ("llama",)
        assert [type(end) for end in ends] == [Finished]
        # However soon after the unload the next request comes.
        await eventually(partial(follows_the_settings, system), 60)
