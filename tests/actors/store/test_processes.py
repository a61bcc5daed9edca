"""Processes that share a database file, are killed while they write to it, or run out of disk space."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import Connection
from greenroom.schemas.protocols.store_protocol import FindResponse, History, Turns
from greenroom.schemas.stored import StoredResponse
from greenroom.tests.support.actors.store_process import LARGE, StoreProcess, store_process


def kill(running: StoreProcess) -> None:
    running.process.send_signal(signal.SIGKILL)
    running.process.wait()


def find(path: Path, name: str) -> StoredResponse:
    with closing(Connection(str(path))) as connection:
        found = Answers(connection, "reader").answer(FindResponse(name, ""))
    assert isinstance(found, StoredResponse)
    return found


def check_whole(path: Path, name: str, told: Sequence[str]) -> None:
    """Assert that the file is undamaged and that a conversation has every reported turn, each complete."""
    with closing(Connection(str(path))) as connection:
        assert [row[0] for row in connection.read("pragma integrity_check")] == ["ok"]
        history = Answers(connection, "reader").answer(History("", conversation=name))
    assert isinstance(history, Turns)
    stored = [turn.items[0].id.removesuffix("-in") for turn in history.turns]
    # The process may have been killed after the last commit and before its report.
    assert len(told) <= len(stored) <= len(told) + 1
    assert stored[: len(told)] == list(told)
    assert all(len(turn.items) == 2 for turn in history.turns)
    assert all(find(path, name).raw == LARGE for name in stored)


def test_processes_write_to_one_new_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "db"
    with ExitStack() as opened:
        running = [opened.enter_context(store_process(path)) for _ in range(2)]
        for number, process in enumerate(running):
            process.tell("many", f"c{number}", "30")
        told = [[process.line() for _ in range(30)] for process in running]
    for number, names in enumerate(told):
        check_whole(path, f"c{number}", names)


def test_what_a_killed_server_left_unfinished_has_failed_and_that_of_a_living_one_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "db"
    with store_process(path) as killed, store_process(path) as living:
        assert killed.ask("begin", "lost") == "Committed"
        assert living.ask("begin", "going-on") == "Committed"
        kill(killed)
        with store_process(path) as second:
            assert second.ask("begin", "lost-too") == "Committed"
            lost = find(path, "lost")
            body = json.loads(lost.body)
            assert (lost.status, body["status"]) == ("failed", "failed")
            assert body["error"]["code"] == "server_error"
            assert find(path, "going-on").status == "in_progress"
            kill(second)
        assert living.ask("find", "lost-too") == "failed"  # a lookup marks it as failed
        with store_process(path) as third:
            assert third.ask("begin", "lost-again") == "Committed"
            kill(third)
        assert living.ask("prune") == "Pruned"  # pruning runs periodically
        assert find(path, "lost-again").status == "failed"
        assert living.ask("find", "going-on") == "in_progress"
        assert find(path, "going-on").status == "in_progress"
        living.process.communicate()  # a process that exits marks its unfinished responses as failed
        assert find(path, "going-on").status == "failed"
    left = [name for name in os.listdir(tmp_path) if "server" in name]
    assert left == []


def test_only_its_own_server_ends_or_deletes_what_is_generated_until_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as generating, store_process(path) as other:
        assert generating.ask("begin", "mine") == "Committed"
        assert other.ask("find", "mine") == "in_progress"
        assert other.ask("cancel", "mine") == "response_elsewhere"
        assert other.ask("delete", "mine") == "response_elsewhere"
        assert other.ask("delete", "nothing") == "response_not_found"
        kill(generating)
        assert other.ask("find", "mine") == "failed"
        assert other.ask("cancel", "mine") == "StoredResponse"
        assert other.ask("delete", "mine") == "Deleted"


def test_what_a_killed_server_left_can_be_deleted_unasked(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as killed, store_process(path) as living:
        assert killed.ask("begin", "lost") == "Committed"
        assert living.ask("delete", "nothing") == "response_not_found"
        kill(killed)
        assert living.ask("delete", "lost") == "Deleted"


def test_a_conversation_has_one_turn_at_a_time_among_servers_that_live(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with store_process(path) as first, store_process(path) as second:
        assert first.ask("create", "c") == "Committed"
        assert first.ask("lock", "c") == "ConversationLock"
        assert second.ask("lock", "c") == "conversation_in_use"
        assert second.ask("lock", "d") == "ConversationLock"
        assert first.ask("turn", "c") == "Committed"
        assert second.ask("lock", "c") == "ConversationLock"
        assert first.ask("lock", "d") == "conversation_in_use"
        kill(second)
        assert first.ask("lock", "d") == "ConversationLock"


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
