"""Conversations, their items, and the pages in which items are listed."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.tables import items_table, paging
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    FindConversation,
    FindItem,
    ListItems,
    UpdateConversation,
)
from greenroom.schemas.protocols.store_protocol import (
    CommitResponse,
    FindItems,
    FindResponse,
    ItemPage,
    ListInput,
)
from greenroom.schemas.stored import StoredResponse
from greenroom.tests.support.actors.stored_records import conversation, item, response


def page(answers: Answers, message: ListItems | ListInput) -> tuple[list[str], bool]:
    found = answers.answer(message)
    assert isinstance(found, ItemPage)
    return [one.id for one in found.items], found.has_more


def status_of(answers: Answers, message: Any) -> int:
    with pytest.raises(ProblemError) as refused:
        answers.answer(message)
    return refused.value.problem.status


@pytest.fixture
def seven(answers: Answers) -> Answers:
    """Store a conversation `c` with the items 0 to 6."""
    answers.answer(CreateConversation(conversation("c"), tuple(item(str(name)) for name in range(3))))
    answers.answer(AddItems("c", "", tuple(item(str(name)) for name in range(3, 7))))
    return answers


def test_pages_follow_each_other_in_both_orders(seven: Answers) -> None:
    assert page(seven, ListItems("c", "", limit=3, order="asc")) == (["0", "1", "2"], True)
    assert page(seven, ListItems("c", "", "2", 3, "asc")) == (["3", "4", "5"], True)
    assert page(seven, ListItems("c", "", "5", 3, "asc")) == (["6"], False)
    assert page(seven, ListItems("c", "", "6", 3, "asc")) == ([], False)
    assert page(seven, ListItems("c", "", limit=4)) == (["6", "5", "4", "3"], True)
    assert page(seven, ListItems("c", "", "3", 4)) == (["2", "1", "0"], False)


def test_a_page_is_bounded_and_begins_behind_something_that_is_there(seven: Answers) -> None:
    assert status_of(seven, ListItems("c", "", "nothing")) == 404
    assert [status_of(seven, ListItems("c", "", limit=limit)) for limit in (0, 101)] == [400, 400]


def test_a_page_of_large_items_is_shorter_and_all_of_them_come(
    seven: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MAX_PAGE_LENGTH", 2 * len(item("0").body))
    read: list[str] = []
    more = True
    while more:
        found, more = page(seven, ListItems("c", "", read[-1] if read else None, 5, "asc"))
        assert 1 <= len(found) <= 2
        read += found
    assert read == list("0123456")


def test_pages_pass_items_that_share_an_id(answers: Answers) -> None:
    answers.answer(CreateConversation(conversation("c"), tuple(map(item, "xxyxz"))))
    assert page(answers, ListItems("c", "", "x", 9, "asc")) == (["z"], False)
    assert page(answers, ListItems("c", "", "x", 9)) == ([], False)


def test_an_item_is_found_and_taken_out_while_its_response_keeps_it(seven: Answers) -> None:
    seven.answer(CommitResponse(response("r", conversation="c")))
    assert seven.answer(FindItem("c", "", "r-in")) == item("r-in")
    left = conversation("c", latest=("r", "completed"))
    assert seven.answer(DeleteItem("c", "", "r-in")) == left
    assert seven.answer(DeleteItem("c", "", "3")) == left
    for gone in ("r-in", "3"):
        assert status_of(seven, FindItem("c", "", gone)) == 404
        assert status_of(seven, DeleteItem("c", "", gone)) == 404
    assert page(seven, ListItems("c", "", limit=3)) == (["r-out", "6", "5"], True)
    assert page(seven, ListInput("r", "")) == (["r-in"], False)


def test_metadata_is_replaced(seven: Answers) -> None:
    changed = conversation("c", metadata={"k": "v"})
    assert seven.answer(UpdateConversation("c", "", {"k": "v"})) == changed
    assert seven.answer(FindConversation("c", "")) == changed


def test_a_deleted_conversation_takes_its_own_items_and_leaves_the_responses(seven: Answers) -> None:
    seven.answer(CommitResponse(response("r", conversation="c")))
    seven.answer(DeleteConversation("c", ""))
    for message in (
        FindConversation("c", ""),
        ListItems("c", ""),
        FindItem("c", "", "1"),
        AddItems("c", "", (item("x"),)),
        UpdateConversation("c", "", {}),
        DeleteConversation("c", ""),
    ):
        assert status_of(seven, message) == 404
    kept = seven.answer(FindResponse("r", ""))
    assert isinstance(kept, StoredResponse)
    assert (kept.input, kept.output) == ((item("r-in"),), (item("r-out"),))


def test_what_is_too_long_is_refused_before_it_is_written(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_table, "MAX_RECORD", 1000)
    for message in (
        CreateConversation(conversation("c"), (item("a", "x" * 500), item("b", "x" * 500))),
        CommitResponse(response("r", raw="x" * 1000)),
    ):
        assert status_of(answers, message) == 413
    assert status_of(answers, FindConversation("c", "")) == 404


def test_items_are_found_by_id_alone_but_only_by_their_owner(
    answers: Answers, connection: Connection
) -> None:
    answers.answer(CreateConversation(conversation("c"), (item("added"),)))
    answers.answer(CommitResponse(response("a")))
    answers.answer(CommitResponse(response("b", conversation="c")))
    mentions = {"added": 1, "b-in": 2, "unknown": 1, "a-out": 1}
    found = answers.answer(FindItems(mentions, ""))
    assert isinstance(found, ItemPage)
    assert found.items == (item("added"), item("b-in"), item("a-out"))
    assert answers.answer(FindItems(mentions, "somebody")) == ItemPage((), has_more=False)
    with pytest.raises(ProblemError) as refused:
        items_table.ItemsTable(connection).find_many(mentions, "", 1)
    assert refused.value.problem.status == 413


def test_an_item_counts_as_often_as_it_is_named(answers: Answers, connection: Connection) -> None:
    answers.answer(CreateConversation(conversation("c"), (item("added", "x" * 100),)))
    length = len(item("added", "x" * 100).body)
    table = items_table.ItemsTable(connection)
    assert table.find_many({"added": 10}, "", 10 * length).items == (item("added", "x" * 100),)
    with pytest.raises(ProblemError) as refused:
        table.find_many({"added": 11}, "", 10 * length)
    assert refused.value.problem.status == 413
