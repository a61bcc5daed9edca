"""Stored records are found again by the same system and the next, and by their owner alone."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import attrs
import pytest
import sqlite_utils

from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker_thread import Heartbeat
from greenroom.actors.store import connection as connections
from greenroom.actors.store import store as stores
from greenroom.actors.store import store_loop
from greenroom.actors.store.connection import Capacity, Connection, check_database
from greenroom.actors.store.database_file import UnusableDatabase, prepare_file
from greenroom.actors.store.store_loop import (
    Answered,
    DatabaseChanged,
    DatabaseOpener,
    Job,
    StoreLoop,
    StoreReport,
)
from greenroom.actors.store.tables import Run, Tables, ask_store, ask_store_or_failed
from greenroom.actors.system import System, open_system
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.store_protocol import (
    CheckStoring,
    Committed,
    DescribeStore,
    Prune,
    Pruned,
    StoreStatus,
)
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.stored_records import (
    PROBED,
    ask,
    change,
    commit,
    completion,
    conversation,
    find,
    item,
    refusal,
    response,
    storing,
)


async def test_what_is_stored_is_found_by_the_next_system_and_the_files_are_its_users(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "kept.db"
    kept = response("r", background=True, events='[{"type": "x"}]', raw="✓ raw")
    metadata = {"topic": "ü", "": "x"}
    async with storing(path) as system:
        await commit(system.refs.store, kept)
        await change(
            system.refs.store,
            lambda tables: tables.conversations.create(conversation("c", metadata=metadata)),
        )
        await change(
            system.refs.store, lambda tables: tables.completions.save(completion("k", metadata=metadata))
        )
        secret = await change(system.refs.store, lambda tables: tables.secrets.find("s"))
        made = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert len(made) == 4  # the database, its write-ahead log, the log's index, and the file of the lock
    assert set(made.values()) == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert sorted(file.name for file in path.parent.iterdir()) == ["kept.db", "kept.db-server"]
    async with storing(path) as system:
        assert await find(system.refs.store, "r", "") == kept
        found = await ask_store(system.refs.store, lambda tables: tables.conversations.find("c", ""))
        assert found == conversation("c", metadata=metadata)
        assert await ask_store(
            system.refs.store, lambda tables: tables.completions.find("k", "")
        ) == completion("k", metadata=metadata)
        assert await change(system.refs.store, lambda tables: tables.secrets.find("s")) == secret
        assert await change(system.refs.store, lambda tables: tables.secrets.find("t")) != secret
    assert len(secret) == 32


async def test_a_system_that_names_no_file_keeps_in_memory_until_it_closes() -> None:
    async with storing() as system:
        await commit(system.refs.store, response("r"))
        assert await find(system.refs.store, "r", "") == response("r")
    async with storing() as system:
        assert (
            await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))
        ).code == "response_not_found"


async def test_what_belongs_to_another_owner_is_unknown() -> None:
    async with storing() as system:
        await commit(system.refs.store, response("r", owner="a"))
        await change(
            system.refs.store, lambda tables: tables.conversations.create(conversation("c", owner="a"))
        )
        for message in (
            lambda tables: tables.responses.find("r", "b"),
            lambda tables: tables.responses.delete("r", "b"),
            lambda tables: tables.conversations.find("c", "b"),
            lambda tables: tables.responses.commit(response("s", parent="r", owner="b")),
            lambda tables: tables.responses.commit(response("s", conversation="c", owner="b")),
        ):
            assert (await refusal(system.refs.store, message)).status == 404
        await find(system.refs.store, "r", "a")


async def test_a_response_is_replaced_when_it_ends_unless_it_was_deleted() -> None:
    begun = response("r", status="in_progress", output=(), completed=None)
    async with storing() as system:
        await change(system.refs.store, lambda tables: tables.responses.begin(begun))
        assert await find(system.refs.store, "r", "") == begun
        await commit(system.refs.store, response("r"), begun=True)
        assert await find(system.refs.store, "r", "") == response("r")
        await change(system.refs.store, lambda tables: tables.responses.delete("r", ""))
        assert (
            await refusal(
                system.refs.store, lambda tables: tables.responses.commit(response("r"), begun=True)
            )
        ).status == 404


async def test_with_store_responses_off_no_content_is_kept(tmp_path: Path) -> None:
    async with storing(tmp_path / "db", store_responses=False) as system:
        for message in (
            lambda tables: tables.responses.commit(response("r")),
            lambda tables: tables.conversations.create(conversation("c")),
            lambda tables: tables.completions.save(completion("k")),
        ):
            problem = await refusal(system.refs.store, message)
            assert (problem.status, problem.param) == (400, "store")
        assert (await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))).status == 404
        await change(system.refs.store, lambda tables: tables.capabilities.save(PROBED))
    async with storing(tmp_path / "db", store_responses=False) as system:
        found = await ask_store(system.refs.store, lambda tables: tables.capabilities.list())
        assert found == (PROBED,)


async def test_what_was_stored_before_stays_until_it_is_deleted(tmp_path: Path) -> None:
    async with storing(tmp_path / "db") as system:
        await commit(system.refs.store, response("r"))
    async with storing(tmp_path / "db", store_responses=False) as system:
        assert await find(system.refs.store, "r", "") == response("r")
        await change(system.refs.store, lambda tables: tables.responses.delete("r", ""))
        assert (await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))).status == 404


async def test_what_was_not_used_for_store_retention_days_is_deleted(tmp_path: Path) -> None:
    async with storing(tmp_path / "db") as system:
        await commit(system.refs.store, response("r"))
        assert await ask(system.refs.store, Prune(), Pruned) == Pruned()
    async with storing(tmp_path / "db", store_retention_days=math.inf) as system:
        assert await ask(system.refs.store, Prune(), Pruned) == Pruned()
    async with storing(tmp_path / "db", store_retention_days=1e-9) as system:
        assert await ask(system.refs.store, Prune(), Pruned) == Pruned(responses=1)
        assert (await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))).status == 404


@pytest.mark.parametrize("wrapped", [True, False])
async def test_an_embedder_passes_an_open_database_and_keeps_it(wrapped: bool) -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        connection.execute("create table mine (x)")
        database = sqlite_utils.Database(connection) if wrapped else connection
        async with open_system(Settings(), database=database) as system:
            await commit(system.refs.store, response("r"))
        tables = sqlite_utils.Database(connection).table_names()
        assert sorted(name for name in tables if not name.startswith(("greenroom_", "sqlite_"))) == [
            "_sqlite_migrations",
            "mine",
        ]
        assert connection.execute("select id from greenroom_responses").fetchall() == [("r",)]


@asynccontextmanager
async def _with_database_of_this_thread() -> AsyncIterator[System]:
    with closing(sqlite3.connect(":memory:")) as connection:
        async with open_system(Settings(), database=connection) as system:
            yield system


async def test_a_database_of_another_thread_alone_is_refused_in_words() -> None:
    async with _with_database_of_this_thread() as system:
        problem = await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))
        assert problem.code == "store_unavailable"
        assert "check_same_thread=False" in problem.detail
        assert (await ask(system.refs.store, DescribeStore(), StoreStatus)).problem == problem.detail


async def test_text_that_no_file_can_hold_is_a_400_and_the_store_goes_on() -> None:
    async with storing() as system:
        broken = attrs.evolve(response("r"), raw="\ud800")
        assert (
            await refusal(system.refs.store, lambda tables: tables.responses.commit(broken))
        ).status == 400
        await commit(system.refs.store, response("r"))


async def test_while_another_process_writes_reading_goes_on_and_storing_is_a_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_loop, "BUSY_TIMEOUT", 0.05)
    async with storing(tmp_path / "db") as system:
        await commit(system.refs.store, response("r"))
        with closing(sqlite3.connect(tmp_path / "db")) as other:
            other.execute("begin immediate")
            problem = await refusal(system.refs.store, lambda tables: tables.responses.commit(response("s")))
            assert (problem.status, problem.code, problem.retry_after) == (503, "store_busy", 2)
            await find(system.refs.store, "r", "")
            # Later requests that would be stored are now refused before generation.
            assert (await refusal(system.refs.store, CheckStoring())).code == "store_busy"
            other.rollback()
        await ask(system.refs.store, CheckStoring(), Committed)
        await commit(system.refs.store, response("s"))
        assert await ask(system.refs.store, DescribeStore(), StoreStatus) == StoreStatus()


async def test_a_system_closes_soon_though_another_process_holds_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "BUSY_TIMEOUT", 600.0)
    with closing(sqlite3.connect(tmp_path / "db")) as other:
        async with open_system(Settings(db=str(tmp_path / "db"), shutdown_timeout=600.0)) as system:
            await commit(system.refs.store, response("r"))
            other.execute("begin immediate")
            monkeypatch.setattr(store_loop, "BUSY_TIMEOUT", 0.05)
            await refusal(system.refs.store, lambda tables: tables.responses.commit(response("s")))
            monkeypatch.setattr(store_loop, "BUSY_TIMEOUT", 600.0)
            await system.refs.store.tell(
                Run(lambda tables: tables.responses.commit(response("t")), writes=True)
            )
            begun = time.monotonic()
        assert time.monotonic() - begun < 150  # half of what the store may have of the shutdown


def test_a_job_that_waited_for_another_process_behind_others_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_loop, "BUSY_TIMEOUT", 1e4)
    now = time.monotonic()
    message = Run(lambda tables: tables.responses.commit(response("r")), writes=True)
    assert Job(message, Reply(), asked=now - 4e3).patience == pytest.approx(6e3, abs=600)
    assert Job(message, Reply(), asked=now - 1e4).patience == 0
    assert Job(CheckStoring(), Reply(), asked=now).patience == 0


async def test_nothing_is_added_beyond_store_max_bytes_and_deleting_makes_room() -> None:
    async with open_system(Settings(db=":memory:", store_max_bytes=1 << 20)) as system:
        names = [f"r{number}" for number in range(8)]
        for name in names[:-1]:
            await commit(system.refs.store, response(name, raw="x" * 140_000))
        problem = await refusal(
            system.refs.store, lambda tables: tables.responses.commit(response(names[-1]))
        )
        assert (problem.status, problem.code) == (507, "storage_full")
        assert "store_max_bytes" in problem.detail
        assert (await refusal(system.refs.store, CheckStoring())).code == "storage_full"

        def make_room(tables: Tables) -> None:
            for name in names[:4]:
                tables.responses.delete(name, "")

        await change(system.refs.store, make_room)
        await commit(system.refs.store, response(names[-1]))


@pytest.mark.parametrize("kind", ["response", "conversation", "item", "completion", "metadata"])
async def test_each_owner_leaves_room_for_others_and_a_full_share_is_told(kind: str) -> None:
    def addition(owner: str, number: int) -> Callable[[Tables], None]:
        name, text, wide = f"{kind}_{owner}_{number}", "x" * 100_000, "\u00e9" * 50_000
        match kind:
            case "response":
                return lambda tables: tables.responses.commit(response(name, owner=owner, raw=wide))
            case "completion":
                return lambda tables: tables.completions.save(completion(name, owner=owner, body=wide))
            case "item":
                return lambda tables: tables.conversations.add_items(f"c_{owner}", owner, (item(name, text),))
            case "metadata":
                titled = conversation(name, owner=owner, metadata={"title": text})
                return lambda tables: tables.conversations.create(titled)
        return lambda tables: tables.conversations.create(
            conversation(name, owner=owner), (item(name, text),)
        )

    async with open_system(Settings(db=":memory:", store_max_bytes=4 << 20)) as system:
        store = system.refs.store

        async def fill(owner: str) -> int:
            for number in itertools.count():
                reply = await ask_store_or_failed(store, addition(owner, number), writes=True)
                if isinstance(reply, Failed):
                    assert (reply.problem.status, reply.problem.code) == (507, "storage_full")
                    assert "Nobody may hold more than is left for others" in reply.problem.detail
                    return number
            raise AssertionError("nothing was refused")

        owners = ["key_1", "key_2", "key_3", ""]

        def begin(tables: Tables) -> None:
            for owner in owners:
                tables.conversations.create(conversation(f"c_{owner}", owner=owner))

        await change(store, begin)
        held = [await fill(owner) for owner in owners]
        assert held[0] in range(15, 21), held
        assert held == sorted(held, reverse=True)
        assert held[-1] >= 1
        await ask(store, CheckStoring("key_5"), Committed)
        assert (await refusal(store, addition("key_1", 99))).code == "storage_full"

        assert (
            await refusal(store, lambda tables: tables.conversations.update("c_key_1", "key_1", {"k": "x"}))
        ).code == "storage_full"
        await change(store, lambda tables: tables.conversations.update("c_key_1", "key_1", {}))


def test_a_part_of_the_disk_stays_free(tmp_path: Path) -> None:
    prepare_file(tmp_path / "db")
    with closing(Connection(str(tmp_path / "db"))) as connection:
        free = shutil.disk_usage(tmp_path).free
        Capacity(connection, reserved=free // 2).check()
        with pytest.raises(ProblemError) as refused:
            Capacity(connection, reserved=2 * free).check()
        assert refused.value.problem.status == 507


def test_the_database_of_another_program_is_refused_at_the_start(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as other:
        other.execute("create table greenroom_responses (id text)")
        other.commit()
    with pytest.raises(UnusableDatabase, match="another program has made it"):
        check_database(str(tmp_path / "db"))


async def test_a_file_that_is_deleted_while_it_is_used_is_made_anew(tmp_path: Path) -> None:
    async with storing(tmp_path / "db") as system:
        await commit(system.refs.store, response("r"))
        for name in os.listdir(tmp_path):
            os.remove(tmp_path / name)
        assert (await refusal(system.refs.store, lambda tables: tables.responses.find("r", ""))).status == 404
        await commit(system.refs.store, response("s"))
    async with storing(tmp_path / "db") as system:
        await find(system.refs.store, "s", "")


def test_maintenance_begins_anew_in_a_file_that_replaces_its_own(tmp_path: Path) -> None:
    reports: list[StoreReport] = []

    def report(found: StoreReport) -> None:
        reports.append(found)
        if isinstance(found, Answered) and isinstance(found.job.message, Prune):
            loop.end()

    def remove(tables: Tables) -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    settings = Settings(db=str(tmp_path / "db"), store_retention_days=1e-12)
    loop = StoreLoop(DatabaseOpener(str(tmp_path / "db"), settings), report)
    loop.put(Job(Run(lambda tables: tables.completions.save(completion("c")), writes=True), Reply()))
    loop.put(Job(Prune(), Reply()))  # takes several steps, between which others are answered
    loop.put(Job(Run(remove), Reply()))
    loop.run(Heartbeat())
    assert [each for each in reports if isinstance(each, DatabaseChanged)] == [DatabaseChanged(None)] * 2
    assert isinstance(reports[-1], Answered)
    assert reports[-1].answer == Pruned()


async def test_a_full_memory_is_told_like_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_MEMORY", 1 << 20)
    async with storing() as system:
        await commit(system.refs.store, response("r"))
        problem = await refusal(
            system.refs.store, lambda tables: tables.responses.commit(response("s", raw="x" * (2 << 20)))
        )
        assert (problem.status, problem.code) == (507, "storage_full")
        assert "nothing was changed" in problem.detail
        await find(system.refs.store, "r", "")
        assert (await refusal(system.refs.store, lambda tables: tables.responses.find("s", ""))).status == 404
