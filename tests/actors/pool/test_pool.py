"""The pool's queues, slots and memory, with concurrent requests to several real models."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import trio

from greenroom.actors.core.ref import ask_actor
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, QueueStatus, TextDelta
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import DescribeModel, LoadPlan, ModelDescriptions, PlanLoad
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    eventually,
    generate,
    state,
    status,
    until,
)


async def next_position(generation: Generation) -> int:
    event = await generation.receive()
    while not isinstance(event, QueueStatus):
        event = await generation.receive()
    return event.position


async def test_requests_beyond_the_slots_wait_in_order_and_know_their_place(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, max_batch=1, max_queue=2, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        with (
            generate(system.pool, "qwen3", "running", max_tokens=20_000) as running,
            generate(system.pool, "qwen3", "first") as first,
            generate(system.pool, "qwen3", "second") as second,
        ):
            await until(running, TextDelta)
            assert await next_position(first) == 0
            assert await next_position(second) == 1
            assert (await status(system.pool, "qwen3")).waiting == 2
            _, refused = await answer(system.pool, "qwen3", "third")
            assert isinstance(refused, Failed)
            assert (refused.problem.status, refused.problem.code) == (503, "queue_full")
            assert refused.problem.retry_after
            # When a request leaves the queue, those behind it move up.
            first.close()
            assert await next_position(second) == 0
            running.close()
            assert isinstance((await until(second, Finished))[-1], Finished)


async def test_the_answers_of_a_request_begin_and_end_one_by_one(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, max_batch=3, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        with (
            generate(system.pool, "qwen3", "running", n=2, max_tokens=20_000) as running,
            generate(system.pool, "qwen3", "large", n=3, max_tokens=4) as large,
        ):
            await until(running, TextDelta)
            ends = [event async for event in large if isinstance(event, Finished)]
            assert sorted(end.index for end in ends) == [0, 1, 2]

            async def one_is_free() -> bool:
                return (await status(system.pool, "qwen3")).slots == 2

            await eventually(one_is_free)


async def test_a_request_takes_a_slot_for_each_choice(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, max_batch=3, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        with (
            generate(system.pool, "qwen3", "running", n=3, max_tokens=20_000) as running,
            generate(system.pool, "qwen3", "large", n=2) as large,
            generate(system.pool, "qwen3", "small") as small,
        ):
            await until(running, TextDelta)
            assert await next_position(large) == 0
            assert await next_position(small) == 1
            described = await status(system.pool, "qwen3")
            assert (described.running, described.slots, described.waiting) == (1, 3, 2)
            running.close()
            for waiting in (large, small):
                assert isinstance((await until(waiting, Finished))[-1], Finished)


async def test_of_more_choices_than_slots_all_are_answered(models: tuple[str, ...]) -> None:
    async with open_system(Settings(models=models, max_batch=2, shutdown_timeout=60.0)) as system:
        with (
            generate(system.pool, "qwen3", "large", n=5, seed=1, temperature=1.0) as large,
            generate(system.pool, "qwen3", "next") as after,
        ):
            ends = [event async for event in large if isinstance(event, Finished | Failed)]
            assert sorted(end.index for end in ends if isinstance(end, Finished)) == [0, 1, 2, 3, 4]
            assert isinstance((await until(after, Finished))[-1], Finished)
        described = await status(system.pool, "qwen3")
        assert (described.running, described.slots) == (0, 0)


async def test_a_queue_of_none_still_lets_a_first_request_load_its_model(models: tuple[str, ...]) -> None:
    async with open_system(
        Settings(models=models, max_batch=1, max_queue=0, shutdown_timeout=60.0)
    ) as system:
        _, end = await answer(system.pool, "qwen3")
        assert isinstance(end, Finished)


async def test_what_is_asked_for_while_a_model_loads_is_told_so(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, shutdown_timeout=60.0)
    faults = Faults(gate=threading.Event())
    assert faults.gate is not None
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        with generate(system.pool, "qwen3") as generation:
            # The prompt is prepared before any weights are loaded.
            events = await until(generation, Admitted)
            assert events[0] == QueueStatus("loading", 0, "qwen3", loading=("qwen3",))
            assert await state(system.pool, "qwen3") is ModelState.LOADING
            faults.gate.set()
            await until(generation, Finished)


async def test_the_least_recently_used_model_gives_way(models: tuple[str, ...]) -> None:
    async with open_system(Settings(models=models, max_loaded_models=2, shutdown_timeout=60.0)) as system:
        for name in ("qwen3", "llama", "qwen3", "mistral"):
            assert isinstance((await answer(system.pool, name))[1], Finished)
        states = {name: await state(system.pool, name) for name in ("qwen3", "llama", "mistral")}
        assert states == {
            "qwen3": ModelState.READY,
            "llama": ModelState.IDLE,
            "mistral": ModelState.READY,
        }


@pytest.mark.parametrize("fault", ["cut", "broken"])
async def test_a_model_that_cannot_be_loaded_unloads_nothing_and_its_plan_says_so(
    models: tuple[str, ...], tmp_path: Path, fault: str
) -> None:
    bad = tmp_path / fault
    shutil.copytree(models[0], bad)
    if fault == "cut":
        weights = (bad / "model.safetensors").read_bytes()
        (bad / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    else:
        (bad / "config.json").write_text("{}")
    settings = Settings(models=(*models[:2], str(bad)), max_loaded_models=2, shutdown_timeout=60.0)
    async with open_system(settings) as system:
        for name in ("qwen3", "llama"):
            assert isinstance((await answer(system.pool, name))[1], Finished)
        (known,) = (await ask_actor(system.pool, DescribeModel(fault), ModelDescriptions)).models
        asked = PlanLoad(ModelKey(fault), known.need, known.problem or known.refused)
        planned = await ask_actor(system.pool, asked, LoadPlan)
        _, failed = await answer(system.pool, fault)
        assert isinstance(failed, Failed)
        assert (failed.problem.status, planned.outcome, planned.unload) == (503, "refused", ())
        assert [await state(system.pool, name) for name in ("qwen3", "llama")] == [ModelState.READY] * 2


@pytest.mark.deep
async def test_a_model_that_is_held_is_never_unloaded_under_its_request(models: tuple[str, ...]) -> None:
    async with open_system(Settings(models=models, max_loaded_models=1, shutdown_timeout=60.0)) as system:
        with (
            generate(system.pool, "qwen3", "holder", max_tokens=400) as holder,
            generate(system.pool, "llama", "waiter") as waiter,
        ):
            await until(holder, TextDelta)
            waiting = await until(waiter, Admitted)
            told = [event for event in waiting if isinstance(event, QueueStatus)]
            assert {(each.status, each.position, each.model) for each in told} <= {
                ("loading", 0, "llama"),
                ("waiting_for_model", 0, "llama"),
            }

            async def waits() -> bool:
                return await state(system.pool, "llama") is ModelState.WAITING

            await eventually(waits)
            finished = (await until(holder, Finished))[-1]
            assert isinstance(finished, Finished)
            assert finished.usage.generated == 400
            assert isinstance((await until(waiter, Finished))[-1], Finished)


@pytest.mark.deep
async def test_a_stream_of_requests_for_one_model_does_not_starve_another(models: tuple[str, ...]) -> None:
    async with open_system(
        Settings(models=models, max_loaded_models=1, max_batch=2, shutdown_timeout=60.0)
    ) as system:
        served: list[str] = []
        over = trio.Event()

        async def keep_asking(number: int) -> None:
            while not over.is_set():
                served.append((await ended(system, "qwen3", f"{number}-{len(served)}")).reason)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(keep_asking, number)
            for turn in range(3):
                goal = len(served) + 4

                async def goes_on(goal: int = goal) -> bool:
                    return len(served) >= goal

                await eventually(goes_on)
                with trio.fail_after(300):
                    await ended(system, "llama", f"other-{turn}")
            over.set()
        assert set(served) == {"length"}


async def ended(system: System, model: str, request_id: str) -> Finished:
    _, end = await answer(system.pool, model, request_id, max_tokens=20)
    assert isinstance(end, Finished), end
    return end


async def test_a_swap_within_a_second_answers_both(models: tuple[str, ...]) -> None:
    async with open_system(Settings(models=models, max_loaded_models=1, shutdown_timeout=60.0)) as system:
        ends: list[Finished] = []

        async def ask(name: str) -> None:
            ends.append(await ended(system, name, name))

        async with trio.open_nursery() as nursery:
            for name in ("qwen3", "llama", "mistral"):
                nursery.start_soon(ask, name)
        assert len(ends) == 3


async def test_a_load_nobody_waits_for_goes_on_until_its_room_is_needed(models: tuple[str, ...]) -> None:
    settings = Settings(models=models, max_loaded_models=1, shutdown_timeout=60.0)
    faults = Faults(gate=threading.Event())
    assert faults.gate is not None
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        with generate(system.pool, "qwen3") as gone:
            await until(gone, Admitted)

            async def begun() -> bool:
                return faults.loads == ["qwen3"]

            await eventually(begun)
        assert await state(system.pool, "qwen3") is ModelState.LOADING
        with generate(system.pool, "llama") as wanted:
            await until(wanted, Admitted)

            async def abandoned() -> bool:
                return await state(system.pool, "qwen3") is ModelState.IDLE

            await eventually(abandoned)
            faults.gate.set()
            assert isinstance((await until(wanted, Finished))[-1], Finished)
        assert faults.loads == ["qwen3", "llama"]
