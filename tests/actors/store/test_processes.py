"""Processes that share a database file, are killed while they write to it, or run out of disk space."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from greenroom.actors.store.connection import Connection
from greenroom.actors.store.database_file import has_server
from greenroom.actors.store.tables import Tables
from greenroom.schemas.stored import StoredResponse
from greenroom.tests.support.actors.store_process import LARGE, StoreProcess, store_process


def kill(running: StoreProcess) -> None:
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()


def find(path: Path, name: str) -> StoredResponse:
    with closing(Connection(str(path))) as connection:
        found = Tables(connection, "reader").responses.find(name, "")
    return found


def check_whole(path: Path, name: str, told: Sequence[str]) -> None:
    """Assert that the file is undamaged and that a conversation has every reported turn, each complete."""
    with closing(Connection(str(path))) as connection:
        assert [row[0] for row in connection.read("pragma integrity_check")] == ["ok"]
        history = Tables(connection, "reader").histories.before("", conversation=name)
    stored = [turn.items[0].id.removesuffix("-in") for turn in history.turns]
    # The process may have been killed after the last commit and before its report.
    assert len(told) <= len(stored) <= len(told) + 1
    assert stored[: len(told)] == list(told)
    assert all(len(turn.items) == 2 for turn in history.turns)
    assert all(find(path, name).raw == LARGE for name in stored)


@pytest.mark.deep
def test_of_processes_that_open_a_new_file_at_once_one_has_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "db"
    with ExitStack() as opened:
        running = [opened.enter_context(store_process(path)) for _ in range(2)]
        for number, process in enumerate(running):
            process.tell("many", f"c{number}", "30")
        told = {f"c{number}": [process.line() for _ in range(30)] for number, process in enumerate(running)}
        assert all(process.ask("find", "c0-0") in ("completed", "response_not_found") for process in running)
    with closing(Connection(str(path))) as connection:
        [stored] = [row["id"] for row in connection.read("select id from greenroom_conversations")]
    check_whole(path, stored, told[stored])


@pytest.mark.deep
def test_what_a_killed_server_left_unfinished_has_failed_once_the_next_one_starts(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as killed:
        assert killed.ask("begin", "lost") == "Committed"
        assert killed.ask("find", "lost") == "in_progress"
        kill(killed)
    with store_process(path) as following:
        assert following.ask("begin", "going-on") == "Committed"
        assert following.ask("find", "lost") == "failed"
        body = json.loads(find(path, "lost").body)
        assert (body["status"], body["error"]["code"]) == ("failed", "server_error")
        assert following.ask("find", "going-on") == "in_progress"
        following.process.communicate()  # a process that exits marks its unfinished responses as failed
        assert find(path, "going-on").status == "failed"


@pytest.mark.deep
def test_a_second_server_keeps_in_memory_what_it_stores_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as first, store_process(path) as second:
        assert first.ask("begin", "firsts") == "Committed"
        assert not has_server(tmp_path / "other")
        assert has_server(path)
        assert second.ask("commit", "seconds") == "Committed"
        assert second.ask("find", "seconds") == "completed"
        assert [second.ask(verb, "firsts") for verb in ("find", "delete")] == ["response_not_found"] * 2
        assert first.ask("find", "seconds") == "response_not_found"
        kill(first)
        assert not has_server(path)
        assert second.ask("commit", "later") == "Committed"
        with store_process(path) as third:
            assert third.ask("find", "firsts") == "failed"
            assert third.ask("find", "later") == "response_not_found"


@pytest.mark.deep
def test_a_response_whose_end_was_not_stored_is_neither_cancelled_nor_kept_from_deletion(
    tmp_path: Path,
) -> None:
    with store_process(tmp_path / "db") as running:
        assert running.ask("begin", "stuck") == "Committed"
        assert running.ask("cancel", "stuck") == "response_not_running"
        assert running.ask("delete", "stuck") == "Deleted"
        assert running.ask("delete", "stuck") == "response_not_found"


@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.soak)])
def test_a_process_that_is_killed_while_it_stores_leaves_whole_turns(times: int, tmp_path: Path) -> None:
    path = tmp_path / "db"
    for number in range(times):
        with store_process(path) as running:
            running.tell("many", f"c{number}", "1000")
            told = [running.line() for _ in range(number + 3)]
            kill(running)
            told += iter(running.line, "")
        check_whole(path, f"c{number}", told)


@pytest.mark.deep
def test_without_room_the_turn_is_refused_by_name_and_the_store_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as running:
        assert running.ask("commit", "before") == "Committed"
        written = path.with_name("db-wal").stat().st_size  # by the migrations, for the most part
        assert running.ask("limit", str(written + 200_000)) == "limited"
        assert running.ask("commit", "large", "x" * 300_000) == "storage_full"
        assert running.ask("commit", "small") == "Committed"
        assert running.ask("limit", "0") == "limited"
        assert running.ask("commit", "large", "x" * 300_000) == "Committed"
    assert find(path, "small").raw == ""
    assert len(find(path, "large").raw) == 300_000
