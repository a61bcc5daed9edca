"""Probed capabilities in the database: every field comes back, to the store and to commands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import structlog

from greenroom.actors.store import items_table
from greenroom.actors.store import items_table as paging
from greenroom.actors.store.connection import Connection
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.read_only import read_capabilities
from greenroom.actors.store.tables import Tables
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import CompletionPage, ItemPage
from greenroom.tests.support.actors.stored_records import PROBED, completion, conversation, item, response

FULL = ProbedCapabilities(
    "a",
    "vision",
    "gemma",
    "gemma",
    "gemma4",
    supports_native_tools=False,
    supports_thinking=True,
    supports_toggle=True,
    tool_format="injection",
    practical_max_tokens=1,
    supports_multi_image=True,
    supports_video=True,
    embedding_dimensions=2,
    max_sequence_length=3,
    is_normalized=False,
    supports_tts=False,
    supports_stt=True,
    probed_at=1.5,
    probe_version=7,
    files="ab",
)


def write(path: Path, *records: ProbedCapabilities) -> None:
    with closing(Connection(str(path))) as connection:
        for record in records:
            Tables(connection, "boot").capabilities.save(record)


def test_every_field_comes_back_and_a_new_probe_replaces_the_last(tmp_path: Path) -> None:
    assert None not in attrs.astuple(FULL)
    newer = attrs.evolve(PROBED, tool_parser_id=None, supports_thinking=None)
    write(tmp_path / "db", PROBED, FULL, newer)
    assert read_capabilities(tmp_path / "db") == (FULL, newer)
    with closing(Connection(str(tmp_path / "db"))) as connection:
        assert Tables(connection, "boot").capabilities.list() == (FULL, newer)


def test_reading_creates_nothing_and_lives_with_anything(tmp_path: Path) -> None:
    assert read_capabilities(tmp_path / "none" / "db") == ()
    assert not list(tmp_path.iterdir())
    with closing(sqlite3.connect(tmp_path / "older")) as connection:
        connection.execute("create table greenroom_secrets (name)")
        assert read_capabilities(connection) == ()
    assert read_capabilities(tmp_path / "older") == ()
    (tmp_path / "text").write_text("Dear diary, " * 100)
    with structlog.testing.capture_logs() as logs:
        assert read_capabilities(tmp_path / "text") == ()
    assert [line["event"] for line in logs] == ["capabilities unreadable"]


@pytest.mark.parametrize("column", ["model_type", "model_family"])
def test_what_only_a_later_version_knows_is_left_out(column: str) -> None:
    with closing(Connection(MEMORY)) as connection:
        tables = Tables(connection, "boot")
        tables.capabilities.save(PROBED)
        tables.capabilities.save(FULL)
        with connection.transaction():
            connection.write(f"update greenroom_capabilities set {column} = 'smell' where model_id = 'a'")
        assert tables.capabilities.list() == (PROBED,)


@pytest.fixture
def four(tables: Tables) -> Tables:
    """Store completions a to d of two models, and one of another owner."""
    for name, model, metadata in (
        ("a", "m", {"k": "1"}),
        ("b", "n", {"k": "1", "l": "2"}),
        ("c", "m", {"k": "2"}),
        ("d", "m", {}),
    ):
        tables.completions.save(completion(name, model=model, metadata=metadata))
    tables.completions.save(completion("e", owner="other"))
    return tables


def listed(found: CompletionPage) -> tuple[str, bool]:
    return "".join(one.id for one in found.completions), found.has_more


def test_completions_are_listed_by_model_and_metadata_in_pages(four: Tables) -> None:
    assert listed(four.completions.list("")) == ("abcd", False)
    assert listed(four.completions.list("", limit=2)) == ("ab", True)
    assert listed(four.completions.list("", "b", order="desc")) == ("a", False)
    assert listed(four.completions.list("", model="m", limit=2)) == ("ac", True)
    assert listed(four.completions.list("", metadata={"k": "1"})) == ("ab", False)
    assert listed(four.completions.list("", metadata={"k": "1", "l": "2"})) == ("b", False)
    assert listed(four.completions.list("", "c", model="m", metadata={"k": "2"})) == ("", False)


def test_metadata_is_replaced_and_the_deleted_is_gone(four: Tables) -> None:
    changed = completion("d", metadata={"k": "1"})
    assert four.completions.update("d", "", {"k": "1"}) == changed
    assert four.completions.find("d", "") == changed
    four.completions.delete("d", "")
    for name, function in (
        ("d", four.completions.find),
        ("d", lambda name, owner: four.completions.update(name, owner, {})),
        ("d", four.completions.delete),
        ("e", four.completions.find),
    ):
        with pytest.raises(ProblemError) as refused:
            function(name, "")
        assert refused.value.problem.status == 404


def page(found: ItemPage) -> tuple[list[str], bool]:
    return [one.id for one in found.items], found.has_more


def status_of(function: Callable[..., object], *arguments: object, **named: object) -> int:
    with pytest.raises(ProblemError) as refused:
        function(*arguments, **named)
    return refused.value.problem.status


@pytest.fixture
def seven(tables: Tables) -> Tables:
    """Store a conversation `c` with the items 0 to 6."""
    tables.conversations.create(conversation("c"), tuple(item(str(name)) for name in range(3)))
    tables.conversations.add_items("c", "", tuple(item(str(name)) for name in range(3, 7)))
    return tables


def test_pages_follow_each_other_in_both_orders(seven: Tables) -> None:
    assert page(seven.conversations.list_items("c", "", limit=3, order="asc")) == (["0", "1", "2"], True)
    assert page(seven.conversations.list_items("c", "", "2", 3, "asc")) == (["3", "4", "5"], True)
    assert page(seven.conversations.list_items("c", "", "5", 3, "asc")) == (["6"], False)
    assert page(seven.conversations.list_items("c", "", "6", 3, "asc")) == ([], False)
    assert page(seven.conversations.list_items("c", "", limit=4)) == (["6", "5", "4", "3"], True)
    assert page(seven.conversations.list_items("c", "", "3", 4)) == (["2", "1", "0"], False)


def test_a_page_is_bounded_and_begins_behind_something_that_is_there(seven: Tables) -> None:
    listing = seven.conversations.list_items
    assert status_of(listing, "c", "", "nothing") == 404
    assert [status_of(listing, "c", "", limit=limit) for limit in (0, 101)] == [400, 400]


def test_a_page_of_large_items_is_shorter_and_all_of_them_come(
    seven: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MAX_PAGE_LENGTH", 2 * len(item("0").body))
    read: list[str] = []
    more = True
    while more:
        found, more = page(seven.conversations.list_items("c", "", read[-1] if read else None, 5, "asc"))
        assert 1 <= len(found) <= 2
        read += found
    assert read == list("0123456")


def test_pages_pass_items_that_share_an_id(tables: Tables) -> None:
    tables.conversations.create(conversation("c"), tuple(map(item, "xxyxz")))
    assert page(tables.conversations.list_items("c", "", "x", 9, "asc")) == (["z"], False)
    assert page(tables.conversations.list_items("c", "", "x", 9)) == ([], False)


def test_an_item_is_found_and_taken_out_while_its_response_keeps_it(seven: Tables) -> None:
    seven.responses.commit(response("r", conversation="c"))
    assert seven.conversations.find_item("c", "", "r-in") == item("r-in")
    changed = conversation("c", latest=("r", "completed"))
    for name in ("r-in", "3"):
        assert seven.conversations.remove_item("c", "", name) == changed
        assert status_of(seven.conversations.find_item, "c", "", name) == 404
        assert status_of(seven.conversations.remove_item, "c", "", name) == 404
    assert page(seven.conversations.list_items("c", "", limit=3)) == (["r-out", "6", "5"], True)
    assert page(seven.responses.list_input("r", "")) == (["r-in"], False)


def test_metadata_is_replaced(seven: Tables) -> None:
    changed = conversation("c", metadata={"k": "v"})
    assert seven.conversations.update("c", "", {"k": "v"}) == changed
    assert seven.conversations.find("c", "") == changed


def test_a_deleted_conversation_takes_its_own_items_and_leaves_the_responses(seven: Tables) -> None:
    seven.responses.commit(response("r", conversation="c"))
    seven.responses.delete_conversation("c", "")
    table = seven.conversations
    assert status_of(table.find, "c", "") == status_of(table.list_items, "c", "") == 404
    assert status_of(table.find_item, "c", "", "1") == 404
    assert status_of(table.add_items, "c", "", (item("x"),)) == status_of(table.update, "c", "", {}) == 404
    assert status_of(seven.responses.delete_conversation, "c", "") == 404
    kept = seven.responses.find("r", "")
    assert (kept.input, kept.output) == ((item("r-in"),), (item("r-out"),))


def test_what_is_too_long_is_refused_before_it_is_written(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_table, "MAX_RECORD", 1000)
    halves = item("a", "x" * 500), item("b", "x" * 500)
    assert status_of(tables.conversations.create, conversation("c"), halves) == 413
    assert status_of(tables.responses.commit, response("r", raw="x" * 1000)) == 413
    assert status_of(tables.conversations.find, "c", "") == 404


def test_items_are_found_by_id_alone_but_only_by_their_owner(tables: Tables, connection: Connection) -> None:
    tables.conversations.create(conversation("c"), (item("added"),))
    tables.responses.commit(response("a"))
    tables.responses.commit(response("b", conversation="c"))
    mentions = {"added": 1, "b-in": 2, "unknown": 1, "a-out": 1}
    found = tables.items.find_many(mentions, "")
    assert found.items == (item("added"), item("b-in"), item("a-out"))
    assert tables.items.find_many(mentions, "somebody") == ItemPage((), has_more=False)
    with pytest.raises(ProblemError) as refused:
        items_table.ItemsTable(connection).find_many(mentions, "", 1)
    assert refused.value.problem.status == 413


def test_an_item_counts_as_often_as_it_is_named(tables: Tables, connection: Connection) -> None:
    tables.conversations.create(conversation("c"), (item("added", "x" * 100),))
    length = len(item("added", "x" * 100).body)
    table = items_table.ItemsTable(connection)
    assert table.find_many({"added": 10}, "", 10 * length).items == (item("added", "x" * 100),)
    with pytest.raises(ProblemError) as refused:
        table.find_many({"added": 11}, "", 10 * length)
    assert refused.value.problem.status == 413
