"""Store threads that hang or panic: failures are reported, and no record is half-written."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from greenroom.actors.core.worker import MAX_HUNG
from greenroom.actors.store.store import MAX_WAITING
from greenroom.actors.store.tables import Run, Tables, ask_store_or_failed
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.store_protocol import DescribeStore, StoreStatus
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import StoredResponse
from greenroom.testing import Faults
from greenroom.tests.support.actors.actor_systems import (
    HANG_TIMEOUT,
    eventually,
    fall_silent,
)
from greenroom.tests.support.actors.stored_records import ask, commit, find, refusal, response

STICKS = "sticks"
"""Marker of SQL statements that block until the test releases them."""


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that runs, and that the test can also jump ahead."""
    return MockClock(rate=1.0)


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Make database statements marked with `STICKS` block, as on a disk that does not respond."""
    faults = Faults()

    def trace(statement: str) -> None:
        if STICKS in statement and not faults.release.is_set():
            faults.hangs.set()
            faults.release.wait()

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        opened = sqlite3.Connection(*arguments, **options)
        opened.set_trace_callback(trace)
        return opened

    monkeypatch.setattr(sqlite3, "connect", connect)
    return faults


@asynccontextmanager
async def hanging(path: Path, faults: Faults) -> AsyncIterator[System]:
    settings = Settings(db=str(path), shutdown_timeout=20.0)
    try:
        async with open_system(settings, hang_timeout=HANG_TIMEOUT) as system:
            yield system
    finally:
        faults.release.set()


async def refuse(system: System, asked: Callable[[Tables], object], into: list[Problem]) -> None:
    into.append(await refusal(system.refs.store, asked))


async def status(system: System) -> StoreStatus:
    return await ask(system.refs.store, DescribeStore(), StoreStatus)


async def test_a_hung_message_fails_by_name_the_next_thread_goes_on_and_what_it_wrote_is_undone(
    clock: MockClock, faults: Faults, tmp_path: Path
) -> None:
    async with hanging(tmp_path / "db", faults) as system:
        store = system.refs.store
        await commit(store, response("before"))
        problems: list[Problem] = []
        behind: list[object] = []

        async def wait_behind() -> None:
            behind.append(
                await ask_store_or_failed(store, lambda tables: tables.responses.find("before", ""))
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                refuse, system, lambda tables: tables.responses.commit(response(STICKS)), problems
            )
            await trio.to_thread.run_sync(faults.hangs.wait)
            nursery.start_soon(wait_behind)
            await fall_silent(clock, faults, system)
        assert [(problem.status, problem.code) for problem in problems] == [(503, "store_hung")]
        assert behind == [response("before")]
        assert (await status(system)).hung_threads == 1
        faults.release.set()

        async def returned() -> bool:
            return (await status(system)).hung_threads == 0

        await eventually(returned)
        assert (await refusal(store, lambda tables: tables.responses.find(STICKS, ""))).status == 404
        await commit(store, response(STICKS))
    assert not system.hung


async def test_after_too_many_hung_threads_no_more_are_lost_until_they_come_back(
    clock: MockClock, faults: Faults, tmp_path: Path
) -> None:
    async with hanging(tmp_path / "db", faults) as system:
        problems: list[Problem] = []
        for _ in range(MAX_HUNG):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refuse, system, lambda tables: tables.responses.find(STICKS, ""), problems)
                await fall_silent(clock, faults, system)
        assert {problem.code for problem in problems} == {"store_hung"}
        refused = await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))
        assert f"{MAX_HUNG} threads hang" in refused.detail
        assert await status(system) == StoreStatus(refused.detail, MAX_HUNG)
        faults.release.set()

        async def mended() -> bool:
            return await status(system) == StoreStatus()

        await eventually(mended)
        await commit(system.refs.store, response("r"))


class Panic(BaseException):
    """An error that is no `Exception`, as native libraries raise."""


async def test_a_panic_fails_its_message_alone(tmp_path: Path) -> None:
    def panic(tables: Tables) -> None:
        raise Panic

    async with open_system(Settings(db=str(tmp_path / "db"), shutdown_timeout=20.0)) as system:
        await commit(system.refs.store, response("r"))
        assert (await refusal(system.refs.store, panic)).code == "internal_error"
        await find(system.refs.store, "r", "")
        assert await status(system) == StoreStatus()


async def test_messages_over_the_limit_are_told_to_come_later(clock: MockClock, faults: Faults) -> None:
    async with open_system(Settings(shutdown_timeout=20.0), hang_timeout=HANG_TIMEOUT) as system:
        answers: list[object] = []
        refused = trio.Event()

        async def find(name: str) -> None:
            answers.append(
                await ask_store_or_failed(system.refs.store, lambda tables: tables.responses.find(name, ""))
            )
            refused.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(find, STICKS)
            await trio.to_thread.run_sync(faults.hangs.wait)
            for _ in range(MAX_WAITING):
                nursery.start_soon(find, "r")
            with trio.fail_after(300):
                await refused.wait()
            faults.release.set()
        codes = [answered.problem.code for answered in answers if isinstance(answered, Failed)]
        assert codes == ["store_busy"] + ["response_not_found"] * MAX_WAITING


async def test_a_function_that_writes_unsaid_or_is_not_finished_fails_alone() -> None:
    async def later(tables: Tables) -> None:
        raise AssertionError("nobody waits for it")

    wrong: list[Callable[[Tables], object]] = [
        later,
        lambda tables: (tables.responses.find(name, "") for name in "r"),
        lambda tables: tables.responses.commit(response("r")),
    ]
    async with open_system(Settings(shutdown_timeout=20.0)) as system:
        store = system.refs.store
        for function in wrong:
            failed = await ask_store_or_failed(store, function)
            assert isinstance(failed, Failed)
            assert failed.problem.code == "internal_error"
        assert (await refusal(store, lambda tables: tables.responses.find("r", ""))).status == 404
        await commit(store, response("r"))


def storing(stored: StoredResponse) -> Run[None]:
    return Run(lambda tables: tables.responses.commit(stored), writes=True)


async def test_what_was_asked_before_the_end_is_stored(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "db"), shutdown_timeout=20.0)
    async with open_system(settings) as system:
        for number in range(20):
            await system.refs.store.tell(storing(response(f"r{number}")))
    async with open_system(settings) as system:
        for number in range(20):
            await find(system.refs.store, f"r{number}", "")
