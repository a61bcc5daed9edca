"""The process that keeps the machine awake: a real script as the platform's tool, and time that jumps."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import structlog
import trio
from trio.testing import MockClock, wait_all_tasks_blocked, wait_all_threads_completed

from greenroom.actors.pool.keep_awake import QUIET_SECONDS, KeepAwake, awake_command, keeps_awake
from greenroom.actors.system import open_system
from greenroom.schemas.events.events import Finished, TextDelta
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import answer, eventually, generate, status, until

TOOL = awake_command(sys.platform)[0]


class Tools:
    """A folder of scripts that stand for the platforms' tools: each writes down its start, and stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "started"
        for platform in ("darwin", "linux"):
            script = folder / awake_command(platform)[0]
            script.write_text(f'#!/bin/sh\necho "$$ $*" >> {self._log}\nexec cat\n')
            script.chmod(0o755)

    @property
    def started(self) -> list[tuple[int, str]]:
        """Process ids and arguments of all starts."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [(int(line.split()[0]), line.split(maxsplit=1)[1]) for line in lines]

    async def wait_started(self, times: int) -> int:
        """Wait for a start, and return its process id."""

        async def happened() -> bool:
            return len(self.started) == times

        await eventually(happened)
        return self.started[-1][0]


async def wait_ended(process: int) -> None:
    async def happened() -> bool:
        return not runs(process)

    await eventually(happened)


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs in real time and can jump, so that threads may work between jumps."""
    return MockClock(rate=1.0)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Tools(tmp_path)


@pytest.fixture
def settings(models: tuple[str, ...]) -> Settings:
    return Settings(models=models[:1], keep_awake="on", shutdown_timeout=60.0)


async def test_the_machine_stays_awake_until_half_a_minute_after_the_last_request(
    settings: Settings, tools: Tools, clock: MockClock
) -> None:
    async def is_idle() -> bool:
        return not (await status(system.pool, "qwen3")).leases

    async with open_system(settings) as system:
        with generate(system.pool, "qwen3", "long", max_tokens=20_000) as running:
            await until(running, TextDelta)
            first = await tools.wait_started(1)
            clock.jump(QUIET_SECONDS + 1)
            assert isinstance((await answer(system.pool, "qwen3", "short"))[1], Finished)
            assert runs(first)
        await eventually(is_idle)
        clock.jump(QUIET_SECONDS / 2 + 1)
        await wait_all_tasks_blocked()
        assert isinstance((await answer(system.pool, "qwen3", "another"))[1], Finished)
        await eventually(is_idle)
        clock.jump(QUIET_SECONDS / 2 + 1)
        await wait_all_tasks_blocked()
        assert runs(first)
        clock.jump(QUIET_SECONDS)
        await wait_ended(first)
        # The next request starts another, which ends with the system.
        assert isinstance((await answer(system.pool, "qwen3", "next"))[1], Finished)
        second = await tools.wait_started(2)
    assert not runs(second)


@pytest.mark.parametrize("platform", ["darwin", "linux"])
async def test_each_platforms_tool_ends_when_the_server_does(
    platform: str, tools: Tools, nursery: trio.Nursery
) -> None:
    awake = KeepAwake("on", platform)
    nursery.start_soon(awake.run)
    await wait_all_tasks_blocked()
    assert not tools.started
    awake.set_busy(True)
    process = await tools.wait_started(1)
    arguments = tools.started[0][1].split()
    if platform == "darwin":
        assert arguments == ["-i", "-w", str(os.getpid())]
    else:
        assert arguments[0] == "--what=sleep:idle"
        assert arguments[-1] == "cat", "its input ends with this process, even if that is killed"
    nursery.cancel_scope.cancel("the server ends")
    with trio.CancelScope(shield=True):
        await wait_ended(process)


async def test_without_the_tool_requests_are_answered_in_silence(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with structlog.testing.capture_logs() as logs:
        async with open_system(settings) as system:
            assert isinstance((await answer(system.pool, "qwen3"))[1], Finished)
    loud = [line["event"] for line in logs if line["log_level"] in ("warning", "error", "critical")]
    assert set(loud) <= {"model not probed"}


async def test_a_tool_that_cannot_run_is_passed_over_and_tried_again_later(
    tools: Tools, clock: MockClock, nursery: trio.Nursery
) -> None:
    script = tools.folder / TOOL
    good = script.read_text()
    script.write_bytes(b"\x7fELF no program")
    awake = KeepAwake("on")
    nursery.start_soon(awake.run)
    awake.set_busy(True)
    await wait_all_tasks_blocked()
    await wait_all_threads_completed()  # one of them starts the process
    await wait_all_tasks_blocked()
    awake.set_busy(False)
    await wait_all_tasks_blocked()
    clock.jump(QUIET_SECONDS + 1)
    await wait_all_tasks_blocked()
    assert not tools.started
    script.write_text(good)
    awake.set_busy(True)
    assert runs(await tools.wait_started(1))


async def test_a_server_that_need_not_keep_it_awake_starts_nothing(tools: Tools) -> None:
    awake = KeepAwake("off")
    awake.set_busy(True)
    with trio.fail_after(300):
        await awake.run()
    assert not tools.started


def test_only_a_mac_stays_awake_by_itself() -> None:
    assert keeps_awake(Settings().keep_awake, "darwin")
    assert not keeps_awake(Settings().keep_awake, "linux")
    assert keeps_awake("on", "linux")
    assert not keeps_awake("off", "darwin")
