"""Histories: chains of responses, conversations, and their branches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from greenroom.actors.store.connection import Capacity, Connection
from greenroom.actors.store.conversations_table import ConversationsTable, Histories
from greenroom.actors.store.items_table import ItemsTable
from greenroom.actors.store.tables import Tables
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.stored import StoredTurn
from greenroom.tests.support.actors.stored_records import conversation, item, names_of, response


def turns(tables: Tables, **of: str) -> tuple[StoredTurn, ...]:
    found = tables.histories.before("", **of)
    assert not found.left_out
    return found.turns


def names(tables: Tables, **of: str) -> list[str]:
    return [one.id for turn in turns(tables, **of) for one in turn.items]


def problem_of(function: Callable[..., object], *arguments: object, **named: object) -> Problem:
    with pytest.raises(ProblemError) as refused:
        function(*arguments, **named)
    return refused.value.problem


def test_a_chain_is_read_from_its_first_turn_to_the_parent_and_can_branch(tables: Tables) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a")):
        tables.responses.commit(response(name, parent))
    assert names(tables, response="c") == names_of("a", "b", "c")
    assert names(tables, response="d") == names_of("a", "d")
    turn = turns(tables, response="d")[-1]
    assert turn == StoredTurn((item("d-in"), item("d-out")))


def test_a_chain_of_a_thousand_turns_is_read_whole(tables: Tables) -> None:
    made = [f"r{number}" for number in range(1000)]
    for name, parent in zip(made, [None, *made], strict=False):
        tables.responses.commit(response(name, parent))
    assert names(tables, response=made[-1]) == names_of(*made)


def test_a_chain_that_has_lost_a_link_is_a_404_that_names_it(tables: Tables) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        tables.responses.commit(response(name, parent))
    tables.responses.delete("b", "")
    problem = problem_of(tables.histories.before, "", response="c")
    assert (problem.status, problem.code) == (404, "previous_response_not_found")
    assert "'b'" in problem.detail
    assert names(tables, response="a") == names_of("a")


def test_a_conversation_is_read_in_the_order_of_its_turns(tables: Tables) -> None:
    tables.conversations.create(conversation("c"), (item("first"),))
    tables.responses.commit(response("a", conversation="c"))
    tables.conversations.add_items("c", "", (item("between"), item("more")))
    tables.responses.commit(response("b", conversation="c", output=()))
    expected = ["first", *names_of("a"), "between", "more", "b-in"]
    assert names(tables, conversation="c") == expected
    found = turns(tables, conversation="c")
    assert [len(turn.items) for turn in found] == [1, 2, 1, 1, 1]


def test_a_conversation_branches_at_the_turn_of_a_response(tables: Tables) -> None:
    tables.conversations.create(conversation("c"))
    for name in ("a", "b"):
        tables.responses.commit(response(name, conversation="c"))
    tables.responses.commit(response("branch", "a"))
    tables.responses.commit(response("on", "branch"))
    assert names(tables, response="on") == names_of("a", "branch", "on")
    assert names(tables, response="b") == names_of("a", "b")
    tables.conversations.remove_item("c", "", "a-in")
    assert names(tables, response="on") == ["a-out", *names_of("branch", "on")]
    tables.responses.delete_conversation("c", "")
    assert problem_of(tables.histories.before, "", response="on").code == "conversation_not_found"


def test_a_failed_turn_is_no_part_of_its_conversation_and_a_deleted_one_stays_in_it(tables: Tables) -> None:
    tables.conversations.create(conversation("c"))
    for name, status in (("a", "completed"), ("b", "failed"), ("d", "cancelled")):
        tables.responses.commit(response(name, conversation="c", status=status))
    tables.responses.delete("a", "")
    assert names(tables, conversation="c") == names_of("a", "d")
    assert names(tables, response="b") == names_of("a", "b")


def test_what_is_unfinished_or_unknown_cannot_be_continued(tables: Tables) -> None:
    tables.responses.begin(response("a", status="queued", output=()))
    assert problem_of(tables.histories.before, "", response="a").status == 409
    assert problem_of(tables.histories.before, "", response="b").code == "previous_response_not_found"
    assert problem_of(tables.histories.before, "", conversation="b").code == "conversation_not_found"
    for gone in (response("c", "b"), response("c", conversation="b")):
        assert problem_of(tables.responses.commit, gone).status == 404


@pytest.mark.parametrize("fitting", [0, 1, 2, 3])
def test_of_a_history_that_is_too_long_the_newest_turns_are_read(
    fitting: int, connection: Connection
) -> None:
    tables = Tables(connection, "boot")
    tables.conversations.create(conversation("c"))
    tables.responses.commit(response("x", conversation="c"))
    for name, parent in (("a", None), ("b", "a"), ("d", "b")):
        tables.responses.commit(response(name, parent))
        tables.responses.commit(response(f"{name}-c", conversation="c"))
    one_turn = len(item("a-in").body) + len(item("a-out").body)
    items, capacity = ItemsTable(connection), Capacity(connection)
    conversations = ConversationsTable(connection, items, capacity)
    histories = Histories(connection, items, conversations, one_turn * fitting)
    found = histories.of_response("d", "")
    kept = max(fitting, 1)  # the newest is always kept
    assert [turn.items[0].id for turn in found.turns] == ["a-in", "b-in", "d-in"][-kept:]
    assert found.left_out == 3 - kept
    read = histories.of_conversation("c", "")
    newest = ["x-in", "a-c-in", "b-c-in", "d-c-in"][-len(read.turns) :]
    assert [turn.items[0].id for turn in read.turns] == newest
    assert read.left_out == 4 - len(read.turns) > 0


def test_a_branch_that_fills_the_history_leaves_out_its_conversation(connection: Connection) -> None:
    tables = Tables(connection, "boot")
    tables.conversations.create(conversation("c"))
    tables.responses.commit(response("a", conversation="c"))
    tables.responses.commit(response("b", "a"))
    items, capacity = ItemsTable(connection), Capacity(connection)
    conversations = ConversationsTable(connection, items, capacity)
    found = Histories(connection, items, conversations, 1).of_response("b", "")
    assert [turn.items[0].id for turn in found.turns] == ["b-in"]
    assert found.left_out == 1
