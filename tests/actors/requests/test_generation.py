"""A request's way through a system with a real model, driven by its reader."""

from __future__ import annotations

import random

import pytest
import trio

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.model.running_requests import Preparation, RunningRequest
from greenroom.actors.pool.lease_queue import Granted
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, QueueStatus, TextDelta
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.protocols.pool_protocol import (
    Acquire,
    DescribeModel,
    DescribePool,
    ModelDescriptions,
    PoolMessage,
    PoolStatus,
)
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    answer,
    count_objects,
    eventually,
    generate,
    state,
    status,
    until,
)


async def test_events_come_in_the_order_of_a_requests_life(settings: Settings) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "qwen3") as generation:
            events = [event async for event in generation]
            with pytest.raises(trio.EndOfChannel):
                await generation.receive()
        kinds = [type(event) for event in events]
        assert kinds.index(QueueStatus) < kinds.index(Admitted) < kinds.index(TextDelta)
        assert kinds[-1] is Finished
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert finished.usage.generated == 8
        assert finished.timing.queued > 0


async def test_default_means_the_first_model_and_the_key_is_its_own(settings: Settings) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "default") as generation:
            await until(generation, Admitted)
            assert generation.key == ModelKey("qwen3")


async def test_a_road_pulled_in_tiny_steps_loses_nothing(settings: Settings) -> None:
    async with open_system(settings) as system:
        whole, _ = await answer(system.pool, "qwen3", max_tokens=40)
        chance = random.Random(1)
        text, cancelled, finished = "", 0, False
        with generate(system.pool, "qwen3", max_tokens=40) as generation:
            while not finished:
                delay = chance.choice([0, 0, 0.0005, 0.002]) if cancelled > 10 else 0
                with trio.move_on_after(delay) as scope:
                    event = await generation.receive()
                    text += event.text if isinstance(event, TextDelta) else ""
                    finished = isinstance(event, Finished)
                cancelled += scope.cancelled_caught
        assert text == whole


async def test_an_unknown_model_is_named_with_its_neighbours(settings: Settings) -> None:
    async with open_system(settings) as system:
        _, failed = await answer(system.pool, "qwen")
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (404, "model_not_found")
        assert "qwen3" in failed.problem.detail
        _, failed = await answer(system.pool, "../../etc/passwd")
        assert isinstance(failed, Failed)
        assert failed.problem.status == 404


async def test_a_prompt_that_does_not_fit_is_refused_and_leaves_no_lease(settings: Settings) -> None:
    async with open_system(settings) as system:
        _, failed = await answer(system.pool, "qwen3", prompt="word " * 40_000)
        assert isinstance(failed, Failed)
        assert failed.problem.code == "context_length_exceeded"
        await no_one_left(system.pool)


@pytest.mark.deep
async def test_hanging_up_anywhere_leaves_nothing_behind(settings: Settings) -> None:
    async with open_system(settings) as system:
        await answer(system.pool, "qwen3")
        await no_one_left(system.pool)
        others = count_objects(Reply, Preparation, RunningRequest)  # the system's own watchers
        chance = random.Random(3)

        async def hang_up(number: int) -> None:
            choices = 1 + number % 6  # there are four slots
            with generate(system.pool, "qwen3", f"r{number}", max_tokens=200, n=choices) as generation:
                for _ in range(chance.randrange(8)):
                    await generation.receive()

        async with trio.open_nursery() as nursery:
            for number in range(60):
                nursery.start_soon(hang_up, number)
        await no_one_left(system.pool)
        assert (await answer(system.pool, "qwen3"))[0]

        async def removed() -> bool:
            return count_objects(Reply, Preparation, RunningRequest) <= others

        await eventually(removed)


async def test_hanging_up_stops_the_engine_and_not_its_neighbours(settings: Settings) -> None:
    faults = Faults()
    async with open_system(settings, engines=FaultyEngines(settings, faults)) as system:
        whole, _ = await answer(system.pool, "qwen3", max_tokens=60)

        async def engine_rests() -> bool:
            return not faults.engines[0].has_work

        with generate(system.pool, "qwen3", "gone", max_tokens=20_000) as gone:
            await until(gone, TextDelta)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hang_up_soon, gone)
                assert (await answer(system.pool, "qwen3", "stays", max_tokens=60))[0] == whole
        await eventually(engine_rests)


async def hang_up_soon(generation: Generation) -> None:
    for _ in range(3):
        await until(generation, TextDelta)
    generation.close()


async def test_two_requests_with_the_same_id_get_their_own_answers(settings: Settings) -> None:
    async with open_system(settings) as system:
        first, _ = await answer(system.pool, "qwen3", prompt="one", max_tokens=30)
        second, _ = await answer(system.pool, "qwen3", prompt="two", max_tokens=30)
        both: dict[str, str] = {}

        async def ask(prompt: str) -> None:
            both[prompt], _ = await answer(system.pool, "qwen3", "same", prompt=prompt, max_tokens=30)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "one")
            nursery.start_soon(ask, "two")
        assert both == {"one": first, "two": second}
        assert first != second


async def test_models_are_listed_in_the_operators_order(settings: Settings) -> None:
    async with open_system(settings) as system:
        listed = await system.pool.ask(DescribeModel(), ModelDescriptions)
        assert isinstance(listed, ModelDescriptions)
        assert [card.id for card in listed.models][:2] == ["qwen3", "llama"]


@pytest.mark.deep
async def test_no_lease_is_lost_to_askers_who_are_cancelled_anywhere(settings: Settings) -> None:
    async with open_system(settings) as system:
        await answer(system.pool, "qwen3")
        chance = random.Random(11)
        granted = 0

        async def ask() -> None:
            nonlocal granted
            with trio.CancelScope() as scope, trio.CancelScope():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cancel_at, chance.randrange(14), scope)
                    event = await system.pool.ask(Acquire(ModelKey("qwen3")), Granted)
                    if isinstance(event, Granted):
                        granted += 1
                        event.lease.close()

        async def cancel_at(checkpoint: int, scope: trio.CancelScope) -> None:
            for _ in range(checkpoint):
                await trio.lowlevel.checkpoint()
            scope.cancel()

        for _ in range(100):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(ask)
        assert 100 < granted < 1900
        await no_one_left(system.pool)
        assert await state(system.pool, "qwen3") is ModelState.READY


async def no_one_left(pool: Ref[PoolMessage]) -> None:
    described = await pool.ask(DescribePool(), PoolStatus)
    assert isinstance(described, PoolStatus)
    left = [(model.running, model.slots, model.waiting) for model in described.models]
    assert left == [(0, 0, 0)] * len(left)


async def test_a_slot_is_free_when_the_model_is_done_however_slowly_the_answer_is_read(
    settings: Settings,
) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "qwen3") as slow:
            await until(slow, Admitted)
            await until(slow, TextDelta)

            async def slot_is_free() -> bool:
                return not (await status(system.pool, "qwen3")).running

            await eventually(slot_is_free)
            assert isinstance((await until(slow, Finished))[-1], Finished)
