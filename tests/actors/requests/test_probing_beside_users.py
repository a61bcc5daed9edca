"""Probes beside users: last in every queue, ended when nobody listens, and gone without a trace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import Drain, Drained, Probed, ProbeModel, ProbeProgress
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, eventually, state, status
from greenroom.tests.support.models.tiny_models import TinyModel


@asynccontextmanager
async def two_models(tiny_model: TinyModel, places: int | None) -> AsyncIterator[System]:
    folders = tuple(str(tiny_model(kind)) for kind in ("qwen3", "llama"))
    settings = Settings(models=folders, max_loaded_models=places, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        yield system


async def states(system: System) -> dict[str, ModelState]:
    return {name: await state(system.pool, name) for name in ("qwen3", "llama")}


@pytest.mark.parametrize("places", [pytest.param(None, marks=pytest.mark.deep), 1])
@pytest.mark.deep
async def test_the_same_models_are_in_memory_afterwards(tiny_model: TinyModel, places: int | None) -> None:
    async with two_models(tiny_model, places) as system:
        for loaded in ("none", "llama", "qwen3"):
            if loaded != "none":
                assert isinstance((await answer(system.pool, loaded))[1], Finished)
            before = await states(system)
            probed = await system.pool.ask(ProbeModel("qwen3", max_tokens=2), Probed)
            assert isinstance(probed, Probed)
            assert await states(system) == before


@pytest.mark.deep
async def test_users_of_another_model_need_not_wait_for_its_end(tiny_model: TinyModel) -> None:
    async with two_models(tiny_model, 1) as system:
        with await system.pool.stream(ProbeModel("qwen3", max_tokens=200)) as replies:
            await until_answered(replies, 1)
            assert isinstance((await answer(system.pool, "llama"))[1], Finished)
            left = await until_probed(replies)
        # The user came between two questions, and the probe went on afterwards.
        assert left > 1
        assert await states(system) == {"qwen3": ModelState.IDLE, "llama": ModelState.IDLE}


async def test_a_probe_that_nobody_listens_to_ends(tiny_model: TinyModel) -> None:
    async with two_models(tiny_model, None) as system:
        with await system.pool.stream(ProbeModel("qwen3", max_tokens=100_000)) as replies:
            await until_answered(replies, 0)

            async def runs() -> bool:
                return (await status(system.pool, "qwen3")).running == 1

            await eventually(runs)

        async def is_gone() -> bool:
            return await state(system.pool, "qwen3") is ModelState.IDLE

        await eventually(is_gone)
        # The next probe need not wait for it.
        assert isinstance(await system.pool.ask(ProbeModel("qwen3", max_tokens=1), Probed), Probed)


async def test_a_server_that_drains_refuses_probes_and_ends_a_running_one(tiny_model: TinyModel) -> None:
    async with two_models(tiny_model, None) as system:
        with await system.pool.stream(ProbeModel("qwen3", max_tokens=20)) as replies:
            await until_answered(replies, 0)
            await system.pool.ask(Drain(), Drained)
            refused = await system.pool.ask(ProbeModel("llama"), Probed)
            with trio.fail_after(600):
                *_, last = [event async for event in replies]
    for failed in (refused, last):
        assert isinstance(failed, Failed)
        assert failed.problem.code == "draining"


async def test_an_unknown_or_broken_model_fails_its_probe(tiny_model: TinyModel, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "qwen3"}')
    async with open_system(Settings(models=(str(tmp_path / "broken"),))) as system:
        unknown = await system.pool.ask(ProbeModel("nope"), Probed)
        broken = await system.pool.ask(ProbeModel("broken"), Probed)
    assert isinstance(unknown, Failed)
    assert isinstance(broken, Failed)
    assert (unknown.problem.status, broken.problem.code) == (404, "load_failed")


async def until_answered(replies: ReplyStream[object], number: int) -> None:
    """Receive the progress up to a number of answered questions."""
    with trio.fail_after(600):
        async for event in replies:
            assert isinstance(event, ProbeProgress), event
            if event.answered == number:
                return


async def until_probed(replies: ReplyStream[object]) -> int:
    """Return the number of questions that a probe asks until its end."""
    asked = 0
    with trio.fail_after(600):
        async for event in replies:
            if isinstance(event, Probed):
                return asked
            assert isinstance(event, ProbeProgress), event
            asked += 1
    raise AssertionError("the probe has no end")
