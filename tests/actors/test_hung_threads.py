"""Hung and panicking threads: their cost, the reports about them, and their replacement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from greenroom.actors.core.worker import MAX_HUNG
from greenroom.actors.pool.lookups import LOOKUP_TIMEOUT
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    HANG_TIMEOUT,
    answer,
    chat,
    eventually,
    fall_silent,
    generate,
    state,
    status,
    until,
)


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs in real time and can jump, so that threads may work between jumps."""
    return MockClock(rate=1.0)


@asynccontextmanager
async def faulty(settings: Settings, faults: Faults) -> AsyncIterator[System]:
    engines = FaultyEngines(settings, faults)
    try:
        async with open_system(settings, engines=engines, hang_timeout=HANG_TIMEOUT) as system:
            yield system
    finally:
        faults.release.set()


async def problem_of(system: System, model: str, request_id: str) -> Problem:
    _, failed = await answer(system.pool, model, request_id)
    assert isinstance(failed, Failed), failed
    return failed.problem


async def is_ready(system: System) -> bool:
    described = await system.pool.ask(DescribePool(), PoolStatus)
    assert isinstance(described, PoolStatus)
    return described.ready


async def test_a_prompt_that_hangs_fails_by_name_and_the_next_thread_answers_those_behind_it(
    settings: Settings, clock: MockClock
) -> None:
    faults = Faults(hang_prompt={"bad"})
    async with faulty(settings, faults) as system:
        alone, _ = await answer(system.pool, "qwen3", "warm")
        ends: dict[str, InferenceEvent] = {}
        texts: dict[str, str] = {}

        async def ask(request_id: str) -> None:
            texts[request_id], ends[request_id] = await answer(system.pool, "qwen3", request_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "bad")
            await trio.to_thread.run_sync(faults.hangs.wait)
            nursery.start_soon(ask, "behind")
            await fall_silent(clock, faults, system)
        failed = ends["bad"]
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (500, "prompt_hung")
        assert texts["behind"] == alone
        assert (await answer(system.pool, "qwen3", "next"))[0] == alone
        described = await status(system.pool, "qwen3")
        assert (described.hung_threads, described.responds, described.state) == (1, True, ModelState.READY)
        assert system.statistics().quarantined == 1

        faults.release.set()

        async def returned() -> bool:
            return (await status(system.pool, "qwen3")).hung_threads == 0

        await eventually(returned)
    assert not system.hung


async def test_a_model_that_costs_too_many_threads_takes_no_more_prompts_until_one_returns(
    settings: Settings, clock: MockClock
) -> None:
    names = [f"bad{number}" for number in range(MAX_HUNG)]
    faults = Faults(hang_prompt=set(names))
    async with faulty(settings, faults) as system:
        await answer(system.pool, "qwen3", "warm")
        await answer(system.pool, "llama", "warm")
        for name in names:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, system.pool, "qwen3", name)
                await fall_silent(clock, faults, system)
        refused = await problem_of(system, "qwen3", "later")
        assert (refused.status, refused.code) == (503, "model_hung")
        assert refused.retry_after
        assert not (await status(system.pool, "qwen3")).responds
        assert await is_ready(system), "another model answers"
        assert isinstance((await answer(system.pool, "llama", "other"))[1], Finished)
        assert system.statistics().quarantined == MAX_HUNG

        faults.release.set()

        async def responds() -> bool:
            return (await status(system.pool, "qwen3")).responds

        await eventually(responds)
        assert isinstance((await answer(system.pool, "qwen3", "fine"))[1], Finished)


async def test_a_server_is_not_ready_whose_only_model_takes_no_more_prompts(
    settings: Settings, clock: MockClock
) -> None:
    names = [f"bad{number}" for number in range(MAX_HUNG)]
    faults = Faults(hang_prompt=set(names))
    async with faulty(attrs.evolve(settings, models=settings.models[:1]), faults) as system:
        await answer(system.pool, "qwen3", "warm")
        for name in names:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(answer, system.pool, "qwen3", name)
                await fall_silent(clock, faults, system)
        assert (await problem_of(system, "qwen3", "later")).code == "model_hung"
        assert not await is_ready(system)


async def test_files_whose_opening_hangs_are_a_failed_load_that_may_be_tried_again(
    settings: Settings, clock: MockClock
) -> None:
    faults = Faults(hang_open=True)
    async with faulty(settings, faults) as system:
        problems: list[Problem] = []

        async def ask() -> None:
            problems.append(await problem_of(system, "qwen3", "first"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await fall_silent(clock, faults, system)
        assert [(problem.status, problem.code) for problem in problems] == [(503, "load_failed")]
        assert (await status(system.pool, "qwen3")).hung_threads == 1
        faults.hang_open = False
        assert isinstance((await answer(system.pool, "qwen3", "second"))[1], Finished)
        faults.release.set()

        async def returned() -> bool:
            return system.statistics().quarantined == 0

        await eventually(returned)


@pytest.mark.deep
async def test_a_panic_over_a_prompt_costs_that_request_only(settings: Settings) -> None:
    async with faulty(settings, Faults(panic_prompt={"bad"})) as system:
        with generate(system.pool, "qwen3", "running", max_tokens=200) as running:
            await until(running, TextDelta)
            problem = await problem_of(system, "qwen3", "bad")
            assert (problem.status, problem.code) == (503, "tokenizer_crashed")
            assert "'qwen3'" in problem.detail
            assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
            assert isinstance((await until(running, Finished))[-1], Finished)
        assert system.statistics().quarantined == 0
        assert await is_ready(system)


async def test_a_panic_in_a_step_is_a_crash(settings: Settings) -> None:
    async with faulty(settings, Faults(panic={"bad"})) as system:
        _, failed = await answer(system.pool, "qwen3", "bad", max_tokens=200)
        assert isinstance(failed, Failed)
        assert failed.problem.code == "model_crashed"
        assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)


async def test_a_model_whose_code_exits_is_a_failed_load(settings: Settings) -> None:
    async with faulty(settings, Faults(load={"qwen3": SystemExit("ai2-olmo is missing")})) as system:
        problem = await problem_of(system, "qwen3", "first")
        assert (problem.status, problem.code) == (503, "load_failed")
        assert "SystemExit: ai2-olmo is missing" in problem.detail
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)


async def test_who_waits_for_a_room_that_a_hung_model_holds_is_told_so(
    settings: Settings, clock: MockClock
) -> None:
    faults = Faults(hang={"bad"})
    limited_request = attrs.evolve(chat("llama", "limited"), allowed=("llama",))
    async with faulty(attrs.evolve(settings, max_loaded_models=1), faults) as system:
        with (
            generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad,
            generate(system.pool, "llama", "waiting") as waiting,
            Generation(system.pool, limited_request) as limited,
        ):
            await until(bad, TextDelta)
            await until(waiting, Admitted)
            await until(limited, Admitted)
            assert await state(system.pool, "llama") is ModelState.WAITING
            await fall_silent(clock, faults, system)
            ends = [[event async for event in generation][-1] for generation in (bad, waiting, limited)]
        problems = [end.problem for end in ends if isinstance(end, Failed)]
        assert [problem.code for problem in problems] == ["model_hung", "no_room", "no_room"]
        assert ["qwen3" in problem.detail for problem in problems[1:]] == [True, False]
        refused = await problem_of(system, "llama", "later")
        assert (refused.code, refused.retry_after) == ("no_room", 30)
        assert "qwen3" in refused.detail
        faults.release.set()

        async def recovered() -> bool:
            return not (await status(system.pool, "qwen3")).hung

        await eventually(recovered)
        assert isinstance((await answer(system.pool, "llama", "at last"))[1], Finished)


async def test_an_actor_that_fails_while_its_worker_hangs_leaves_it_the_room(
    settings: Settings, clock: MockClock
) -> None:
    faults = Faults(garble={"bad"}, hang={"bad"})
    async with faulty(attrs.evolve(settings, max_loaded_models=1), faults) as system:
        _, failed = await answer(system.pool, "qwen3", "bad", max_tokens=20_000)
        assert isinstance(failed, Failed)
        assert failed.problem.code == "model_crashed"
        await trio.to_thread.run_sync(faults.hangs.wait)
        with generate(system.pool, "llama", "waiting") as waiting:
            await until(waiting, Admitted)
            await fall_silent(clock, faults, system)
            end = [event async for event in waiting][-1]
        assert isinstance(end, Failed)
        assert end.problem.code == "no_room"
        assert faults.loads == ["qwen3"]
        assert (await status(system.pool, "qwen3")).hung
        assert (await problem_of(system, "qwen3", "again")).code == "model_hung"

        faults.release.set()

        async def recovered() -> bool:
            return await is_ready(system)

        await eventually(recovered)
        assert isinstance((await answer(system.pool, "llama", "at last"))[1], Finished)
        assert isinstance((await answer(system.pool, "qwen3", "at last"))[1], Finished)


async def test_an_actor_that_fails_makes_room_only_when_its_worker_has_ended(settings: Settings) -> None:
    faults = Faults(garble={"bad"}, hang={"bad"})
    async with faulty(attrs.evolve(settings, max_loaded_models=1), faults) as system:
        await answer(system.pool, "qwen3", "bad", max_tokens=20_000)
        await trio.to_thread.run_sync(faults.hangs.wait)
        with generate(system.pool, "qwen3", "again") as again:
            await until(again, Admitted)
            assert faults.loads == ["qwen3"]
            faults.release.set()
            faults.hang.clear()
            assert isinstance((await until(again, Finished))[-1], Finished)
        assert faults.loads == ["qwen3", "qwen3"]


@pytest.mark.deep
async def test_a_name_whose_lookup_hangs_or_panics_is_answered(settings: Settings, clock: MockClock) -> None:
    faults = Faults(hang_find={"slow", "slower", "slowest"}, panic_find={"bad"})
    async with faulty(settings, faults) as system:
        await answer(system.pool, "llama")
        assert (await problem_of(system, "bad", "panics")).code == "internal_error"
        problems: list[Problem] = []

        async def ask(name: str) -> None:
            problems.append(await problem_of(system, name, name))

        async with trio.open_nursery() as nursery:
            for name in ("slow", "slower"):
                nursery.start_soon(ask, name)
                await trio.to_thread.run_sync(faults.hangs.wait)
                faults.hangs.clear()
            nursery.start_soon(ask, "slowest")  # no thread is left for this request
            await wait_all_tasks_blocked()
            clock.jump(2 * LOOKUP_TIMEOUT)
        assert [(problem.status, problem.code) for problem in problems] == [(503, "lookup_hung")] * 3
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)
