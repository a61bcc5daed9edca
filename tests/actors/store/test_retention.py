"""Retention: deletion of records unused for too long, unless a younger record needs them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from greenroom.actors.store import retention
from greenroom.actors.store.connection import Connection
from greenroom.actors.store.retention import Retention
from greenroom.actors.store.tables import Tables
from greenroom.schemas.protocols.store_protocol import Pruned
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
    tables = Tables(connection, "boot")
    passing = Retention(connection, tables.responses, tables.conversations, CUTOFF, slice_rows)
    steps = sum(1 for _ in passing.steps())
    return passing.pruned, steps


def kept(connection: Connection, table: str = "responses") -> list[str]:
    return [row["id"] for row in connection.read(f"select id from greenroom_{table} order by number")]


def test_a_chain_goes_in_small_steps_and_stays_while_its_last_turn_is_used(
    connection: Connection, tables: Tables
) -> None:
    chain = [f"r{number}" for number in range(10)]
    for name, parent in zip(chain, [None, *chain], strict=False):
        tables.responses.commit(response(name, parent))
    tables.responses.commit(response("branch", "r3"))
    make_old(connection, *chain)
    pruned, _ = prune(connection)
    assert pruned == Pruned(responses=6)
    assert kept(connection) == ["r0", "r1", "r2", "r3", "branch"]
    make_old(connection, "branch")
    pruned, steps = prune(connection)
    assert (pruned, kept(connection)) == (Pruned(responses=5), [])
    assert steps >= 2  # each step deletes at most three rows
    assert kept(connection, "items") == []


def test_what_is_used_or_unfinished_stays(connection: Connection, tables: Tables) -> None:
    tables.responses.begin(response("unfinished", status="in_progress", output=()))
    tables.responses.commit(response("used"))
    tables.responses.commit(response("old"))
    make_old(connection, "unfinished", "old")
    assert prune(connection)[0] == Pruned(responses=1)
    assert kept(connection) == ["unfinished", "used"]


def test_a_conversation_goes_as_a_whole_once_nothing_continues_it(
    connection: Connection, tables: Tables
) -> None:
    for name in ("c", "d"):
        tables.conversations.create(conversation(name), (item("first"),))
        tables.responses.commit(response(f"{name}1", conversation=name))
    tables.responses.commit(response("branch", "c1"))
    make_old(connection, "c", "c1", "d1")
    assert prune(connection)[0] == Pruned()
    make_old(connection, "branch")
    assert prune(connection)[0] == Pruned(responses=2, conversations=1)
    assert (kept(connection), kept(connection, "conversations")) == (["d1"], ["d"])
    tables.responses.delete_conversation("d", "")
    assert prune(connection)[0] == Pruned(responses=1)
    assert kept(connection, "items") == []


def test_old_completions_go(connection: Connection, tables: Tables) -> None:
    for name in "abcde":
        tables.completions.save(completion(name))
    make_old(connection, *"abde")
    assert prune(connection)[0] == Pruned(completions=4)
    assert kept(connection, "completions") == ["c"]


def test_what_is_changed_counts_as_used(connection: Connection, tables: Tables) -> None:
    for name in ("read", "changed"):
        tables.completions.save(completion(name))
        tables.conversations.create(conversation(name), (item("first"),))
    make_old(connection, "read", "changed")
    tables.completions.find("read", "")
    tables.conversations.find("read", "")
    tables.completions.update("changed", "", {"topic": "sea"})
    tables.conversations.remove_item("changed", "", "first")
    assert prune(connection)[0] == Pruned(conversations=1, completions=1)
    assert kept(connection, "conversations") == kept(connection, "completions") == ["changed"]


def test_the_room_goes_back_to_the_disk_and_the_words_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FREE_PAGES", 10)
    path = tmp_path / "db"
    with closing(Connection(str(path))) as connection:
        tables = Tables(connection, "boot")
        for number in range(50):
            tables.completions.save(completion(f"k{number}", body="my secret " * 1000))
        make_old(connection, *(f"k{number}" for number in range(50)))
        connection.write_back()
        before = path.stat().st_size
        prune(connection)
        assert path.stat().st_size < before / 2
        assert not any(b"my secret" in file.read_bytes() for file in tmp_path.iterdir())
