"""Crashes, failed loads, hung workers and shutdown: each affects only its own model."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import attrs
import pytest
import structlog
import trio
from trio.testing import MockClock

from greenroom.actors.core.worker_thread import Purpose
from greenroom.actors.requests.generation import Generation
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Admitted, Failed, Finished, InferenceEvent, TextDelta
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError, load_failed
from greenroom.schemas.protocols.pool_protocol import DescribePool, Drain, PoolStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import (
    HANG_TIMEOUT,
    answer,
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
async def faulty(settings: Settings, faults: Faults, hang_timeout: float = 120.0) -> AsyncIterator[System]:
    engines = FaultyEngines(settings, faults)
    async with open_system(settings, engines=engines, hang_timeout=hang_timeout) as system:
        yield system


async def rest(generation: Generation) -> list[InferenceEvent]:
    return [event async for event in generation]


@pytest.mark.deep
async def test_a_crash_ends_its_models_streams_and_no_others(settings: Settings) -> None:
    with structlog.testing.capture_logs() as logs:
        async with faulty(settings, Faults(crash={"bad"})) as system:
            whole, _ = await answer(system.pool, "llama", "alone", max_tokens=200)
            with (
                generate(system.pool, "llama", "other", max_tokens=200) as other,
                generate(system.pool, "qwen3", "neighbour", max_tokens=20_000) as neighbour,
                generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad,
            ):
                await until(other, TextDelta)
                await until(neighbour, TextDelta)
                failed, beside = (await rest(bad))[-1], (await rest(neighbour))[-1]
                assert isinstance(failed, Failed)
                assert isinstance(beside, Failed)
                assert failed.problem.code == beside.problem.code == "model_crashed"
            assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
            assert (await answer(system.pool, "llama", "again", max_tokens=200))[0] == whole
    crashes = [entry for entry in logs if entry["event"] == "crashed"]
    assert [(entry["model"], entry["exc_info"]) for entry in crashes] == [("qwen3", True)]
    assert [entry["model"] for entry in logs if entry["event"] == "restarted"] == ["qwen3"]


async def test_an_actor_that_fails_itself_is_supervised(settings: Settings) -> None:
    with structlog.testing.capture_logs() as logs:
        async with faulty(settings, Faults(garble={"bad"})) as system:
            await answer(system.pool, "llama", "warm")
            with generate(system.pool, "llama", "other", max_tokens=200) as other:
                await until(other, TextDelta)
                _, failed = await answer(system.pool, "qwen3", "bad", max_tokens=20_000)
                assert isinstance(failed, Failed)
                assert failed.problem.code == "model_crashed"
                assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
                assert isinstance((await rest(other))[-1], Finished)
    assert [entry["model"] for entry in logs if entry["event"] == "actor crashed"] == ["qwen3"]


async def test_who_waits_for_a_model_that_crashes_is_served_after_its_restart(settings: Settings) -> None:
    one_slot = attrs.evolve(settings, max_batch=1)
    async with faulty(one_slot, Faults(crash={"bad"})) as system:
        with (
            generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad,
            generate(system.pool, "qwen3", "patient") as patient,
        ):
            await until(bad, Admitted)
            assert isinstance((await rest(bad))[-1], Failed)
            assert isinstance((await rest(patient))[-1], Finished)


async def test_a_crash_returns_its_thread(settings: Settings) -> None:
    async with faulty(settings, Faults(crash={"0", "1"})) as system:
        for number in range(2):
            await answer(system.pool, "qwen3", str(number), max_tokens=50)
        await answer(system.pool, "qwen3", "fine")
        made = system.statistics()
        # A new actor may begin before the old one's tokenizer thread is returned.
        assert made.lent + made.idle <= 3


async def test_a_load_that_fails_says_why_and_may_be_tried_again(settings: Settings) -> None:
    faults = Faults(load={"qwen3": ProblemError(load_failed("qwen3", "the disk is on fire."))})
    async with faulty(settings, faults) as system:
        _, failed = await answer(system.pool, "qwen3")
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (503, "load_failed")
        assert "on fire" in failed.problem.detail
        described = await status(system.pool, "qwen3")
        assert described.state is ModelState.ERROR
        assert described.problem is not None
        assert not described.hung
        faults.load.clear()
        assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)


async def test_an_unexpected_error_in_a_load_is_a_failed_load(settings: Settings) -> None:
    async with faulty(settings, Faults(load={"qwen3": ValueError("weights of the wrong shape")})) as system:
        _, failed = await answer(system.pool, "qwen3")
        assert isinstance(failed, Failed)
        assert failed.problem.code == "load_failed"


async def test_a_model_that_keeps_failing_is_left_alone_for_a_while(settings: Settings) -> None:
    faults = Faults(load={"qwen3": ProblemError(load_failed("qwen3", "no."))})
    async with faulty(settings, faults) as system:
        for _ in range(4):
            await answer(system.pool, "qwen3")
        _, failed = await answer(system.pool, "qwen3")
        assert isinstance(failed, Failed)
        assert faults.loads == ["qwen3"] * 3
        assert (failed.problem.status, failed.problem.code) == (503, "load_failed")
        assert failed.problem.retry_after is not None
        assert 30 < failed.problem.retry_after <= 60
        assert isinstance((await answer(system.pool, "llama"))[1], Finished)


async def test_a_folder_without_weights_fails_before_and_after_admission(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    async with open_system(Settings(models=(str(tmp_path / "empty"),), shutdown_timeout=60.0)) as system:
        _, failed = await answer(system.pool, "default")
        assert isinstance(failed, Failed)
        assert failed.problem.code == "load_failed"


async def test_a_hung_worker_is_quarantined_and_the_others_go_on(
    settings: Settings, clock: MockClock
) -> None:
    faults = Faults(hang={"bad"})
    async with faulty(settings, faults, hang_timeout=HANG_TIMEOUT) as system:
        await answer(system.pool, "llama", "warm")
        await answer(system.pool, "qwen3", "first")
        with generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fall_silent, clock, faults, system)
                failed = (await rest(bad))[-1]
        assert isinstance(failed, Failed)
        assert (failed.problem.status, failed.problem.code) == (503, "model_hung")
        assert f"no sign of life for {HANG_TIMEOUT:g} s" in failed.problem.detail
        assert "restart" not in failed.problem.detail
        assert system.statistics().quarantined == 1
        described = await system.pool.ask(DescribePool(), PoolStatus)
        assert isinstance(described, PoolStatus)
        assert not described.ready
        assert (await status(system.pool, "qwen3")).hung
        _, refused = await answer(system.pool, "qwen3", "later")
        assert isinstance(refused, Failed)
        assert refused.problem.code == "model_hung"
        assert isinstance((await answer(system.pool, "llama", "other"))[1], Finished)

        # When the hung thread returns, its model becomes usable again. The thread itself is never reused.
        faults.release.set()

        async def recovered() -> bool:
            return not (await status(system.pool, "qwen3")).hung

        await eventually(recovered)
        _, fine = await answer(system.pool, "qwen3", "fine")
        assert isinstance(fine, Finished)

        async def is_counted() -> bool:
            return system.statistics().working == 0

        await eventually(is_counted)
        totals = (await status(system.pool, "qwen3")).totals
        assert totals is not None
        assert totals.usage.prompt <= 3 * fine.usage.prompt  # what it had computed counts once
    assert not system.hung


async def test_a_shutdown_with_a_hung_worker_ends_within_the_shutdown_timeout(settings: Settings) -> None:
    faults = Faults(hang={"bad"})
    try:
        # The hang timeout would also end the shutdown, but far later.
        with trio.fail_after(300):
            async with faulty(
                attrs.evolve(settings, shutdown_timeout=2.0), faults, hang_timeout=600.0
            ) as system:
                with generate(system.pool, "qwen3", "bad", max_tokens=20_000) as bad:
                    await until(bad, TextDelta)
                    await trio.to_thread.run_sync(faults.hangs.wait)
                    began = trio.current_time()
                    await system.drain()
                    assert isinstance((await rest(bad))[-1], Failed)
            assert trio.current_time() - began < Settings().shutdown_timeout * 2 / 3
        assert system.hung
    finally:
        faults.release.set()
        await threads_end()


async def threads_end() -> None:
    """Wait until hung threads have ended: they hold MLX streams, and must not outlive their test."""

    async def ended() -> bool:
        return not our_threads()

    await eventually(ended)


def our_threads() -> list[threading.Thread]:
    """Return the workers' threads, with those that tests before have left."""
    workers = tuple(f"greenroom-{purpose}-" for purpose in get_args(Purpose))
    return [thread for thread in threading.enumerate() if thread.name.startswith(workers)]


async def test_draining_refuses_what_is_new_and_finishes_what_was_begun(settings: Settings) -> None:
    async with open_system(settings) as system:
        with generate(system.pool, "qwen3", "begun", max_tokens=100) as begun:
            await until(begun, TextDelta)
            await system.pool.tell(Drain())
            _, refused = await answer(system.pool, "qwen3", "late")
            assert isinstance(refused, Failed)
            assert (refused.problem.status, refused.problem.code) == (503, "draining")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(system.drain)
                finished = (await rest(begun))[-1]
            assert isinstance(finished, Finished)
            assert finished.usage.generated == 100


async def test_what_is_left_when_the_shutdown_timeout_is_over_is_cut_with_a_reason(
    settings: Settings,
) -> None:
    faults = Faults(slow={"qwen3": 0.05, "llama": 0.05})
    async with faulty(attrs.evolve(settings, shutdown_timeout=2.0), faults) as system:
        ends: list[InferenceEvent] = []

        async def read(name: str) -> None:
            with generate(system.pool, name, name, max_tokens=20_000) as generation:
                ends.append((await rest(generation))[-1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "qwen3")
            nursery.start_soon(read, "llama")

            async def both_ready() -> bool:
                return {await state(system.pool, name) for name in ("qwen3", "llama")} == {ModelState.READY}

            await eventually(both_ready)
            await system.drain()
        assert [end.problem.code for end in ends if isinstance(end, Failed)] == ["draining", "draining"]


async def test_leaving_in_the_middle_of_everything_leaves_no_thread(settings: Settings) -> None:
    before = our_threads()
    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
        async with open_system(settings) as system, trio.open_nursery() as nursery:
            for number in range(6):
                name = ("qwen3", "llama")[number % 2]
                nursery.start_soon(answer, system.pool, name, str(number))
            with generate(system.pool, "qwen3", "x", max_tokens=20_000) as generation:
                await until(generation, TextDelta)
                raise KeyboardInterrupt
    assert not system.hung
    assert not {*our_threads()} - {*before}
