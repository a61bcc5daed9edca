"""Retention: deletion of records unused for too long, unless a younger record needs them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.tables import retention
from greenroom.actors.store.tables.conversations_table import ConversationsTable
from greenroom.actors.store.tables.items_table import ItemsTable
from greenroom.actors.store.tables.responses_table import ResponsesTable
from greenroom.actors.store.tables.retention import Retention
from greenroom.schemas.protocols.completion_store_protocol import (
    FindCompletion,
    SaveCompletion,
    UpdateCompletion,
)
from greenroom.schemas.protocols.conversation_store_protocol import (
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    FindConversation,
)
from greenroom.schemas.protocols.store_protocol import BeginResponse, CommitResponse
from greenroom.schemas.protocols.store_upkeep_protocol import Pruned
from greenroom.tests.support.actors.stored_records import completion, conversation, item, response

OLD, CUTOFF = 100.0, 200.0


def make_old(connection: Connection, *names: str) -> None:
    """Set the last use of these records far into the past."""
    with connection.transaction():
        for table in ("responses", "conversations", "completions"):
            for name in names:
                connection.write(f"update greenroom_{table} set used = ? where id = ?", (OLD, name))


def prune(connection: Connection, slice_rows: int = 3) -> tuple[Pruned, int]:
    """Delete expired records; return the counts of deleted ones and the number of steps."""
    items = ItemsTable(connection)
    conversations = ConversationsTable(connection, items)
    responses = ResponsesTable(connection, items, conversations, "boot")
    passing = Retention(connection, responses, conversations, CUTOFF, slice_rows)
    steps = sum(1 for _ in passing.steps())
    return passing.pruned, steps


def kept(connection: Connection, table: str = "responses") -> list[str]:
    return [row["id"] for row in connection.read(f"select id from greenroom_{table} order by number")]


def test_a_chain_goes_in_small_steps_and_stays_while_its_last_turn_is_used(
    connection: Connection, answers: Answers
) -> None:
    chain = [f"r{number}" for number in range(10)]
    for name, parent in zip(chain, [None, *chain], strict=False):
        answers.answer(CommitResponse(response(name, parent)))
    answers.answer(CommitResponse(response("branch", "r3")))
    make_old(connection, *chain)
    pruned, _ = prune(connection)
    assert pruned == Pruned(responses=6)
    assert kept(connection) == ["r0", "r1", "r2", "r3", "branch"]
    make_old(connection, "branch")
    pruned, steps = prune(connection)
    assert (pruned, kept(connection)) == (Pruned(responses=5), [])
    assert steps >= 2  # each step deletes at most three rows
    assert kept(connection, "items") == []


def test_what_is_used_or_unfinished_stays(connection: Connection, answers: Answers) -> None:
    answers.answer(BeginResponse(response("unfinished", status="in_progress", output=())))
    answers.answer(CommitResponse(response("used")))
    answers.answer(CommitResponse(response("old")))
    make_old(connection, "unfinished", "old")
    assert prune(connection)[0] == Pruned(responses=1)
    assert kept(connection) == ["unfinished", "used"]


def test_a_conversation_goes_as_a_whole_once_nothing_continues_it(
    connection: Connection, answers: Answers
) -> None:
    for name in ("c", "d"):
        answers.answer(CreateConversation(conversation(name), (item("first"),)))
        answers.answer(CommitResponse(response(f"{name}1", conversation=name)))
    answers.answer(CommitResponse(response("branch", "c1")))
    make_old(connection, "c", "c1", "d1")
    assert prune(connection)[0] == Pruned()
    make_old(connection, "branch")
    assert prune(connection)[0] == Pruned(responses=2, conversations=1)
    assert (kept(connection), kept(connection, "conversations")) == (["d1"], ["d"])
    answers.answer(DeleteConversation("d", ""))
    assert prune(connection)[0] == Pruned(responses=1)
    assert kept(connection, "items") == []


def test_old_completions_go(connection: Connection, answers: Answers) -> None:
    for name in "abcde":
        answers.answer(SaveCompletion(completion(name)))
    make_old(connection, *"abde")
    assert prune(connection)[0] == Pruned(completions=4)
    assert kept(connection, "completions") == ["c"]


def test_what_is_changed_counts_as_used(connection: Connection, answers: Answers) -> None:
    for name in ("read", "changed"):
        answers.answer(SaveCompletion(completion(name)))
        answers.answer(CreateConversation(conversation(name), (item("first"),)))
    make_old(connection, "read", "changed")
    answers.answer(FindCompletion("read", ""))
    answers.answer(FindConversation("read", ""))
    answers.answer(UpdateCompletion("changed", "", {"topic": "sea"}))
    answers.answer(DeleteItem("changed", "", "first"))
    assert prune(connection)[0] == Pruned(conversations=1, completions=1)
    assert kept(connection, "conversations") == kept(connection, "completions") == ["changed"]


def test_the_room_goes_back_to_the_disk_and_the_words_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FREE_PAGES", 10)
    path = tmp_path / "db"
    with closing(Connection(str(path))) as connection:
        answers = Answers(connection, "boot")
        for number in range(50):
            answers.answer(SaveCompletion(completion(f"k{number}", body="my secret " * 1000)))
        make_old(connection, *(f"k{number}" for number in range(50)))
        connection.write_back()
        before = path.stat().st_size
        prune(connection)
        assert path.stat().st_size < before / 2
        assert not any(b"my secret" in file.read_bytes() for file in tmp_path.iterdir())
