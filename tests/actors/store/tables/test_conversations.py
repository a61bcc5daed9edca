"""Conversations, their items, and the pages in which items are listed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from greenroom.actors.store import items_table
from greenroom.actors.store import items_table as paging
from greenroom.actors.store.connection import Connection
from greenroom.actors.store.tables import Tables
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import ItemPage
from greenroom.tests.support.actors.stored_records import conversation, item, response


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
