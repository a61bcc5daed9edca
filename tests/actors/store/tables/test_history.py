"""Histories: chains of responses, conversations, and their branches."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.tables.conversations_table import ConversationsTable
from greenroom.actors.store.tables.history import Histories
from greenroom.actors.store.tables.items_table import ItemsTable
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
)
from greenroom.schemas.protocols.store_protocol import (
    BeginResponse,
    CommitResponse,
    DeleteResponse,
    History,
    Turns,
)
from greenroom.schemas.stored import StoredTurn
from greenroom.tests.support.actors.stored_records import conversation, item, names_of, response


def turns(answers: Answers, **of: str) -> tuple[StoredTurn, ...]:
    found = answers.answer(History("", **of))
    assert isinstance(found, Turns)
    assert not found.left_out
    return found.turns


def names(answers: Answers, **of: str) -> list[str]:
    return [one.id for turn in turns(answers, **of) for one in turn.items]


def problem_of(answers: Answers, message: Any) -> Problem:
    with pytest.raises(ProblemError) as refused:
        answers.answer(message)
    return refused.value.problem


def test_a_chain_is_read_from_its_first_turn_to_the_parent_and_can_branch(answers: Answers) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a")):
        answers.answer(CommitResponse(response(name, parent)))
    assert names(answers, response="c") == names_of("a", "b", "c")
    assert names(answers, response="d") == names_of("a", "d")
    turn = turns(answers, response="d")[-1]
    assert turn == StoredTurn((item("d-in"), item("d-out")))


def test_a_chain_of_a_thousand_turns_is_read_whole(answers: Answers) -> None:
    made = [f"r{number}" for number in range(1000)]
    for name, parent in zip(made, [None, *made], strict=False):
        answers.answer(CommitResponse(response(name, parent)))
    assert names(answers, response=made[-1]) == names_of(*made)


def test_a_chain_that_has_lost_a_link_is_a_404_that_names_it(answers: Answers) -> None:
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        answers.answer(CommitResponse(response(name, parent)))
    answers.answer(DeleteResponse("b", ""))
    problem = problem_of(answers, History("", response="c"))
    assert (problem.status, problem.code) == (404, "previous_response_not_found")
    assert "'b'" in problem.detail
    assert names(answers, response="a") == names_of("a")


def test_a_conversation_is_read_in_the_order_of_its_turns(answers: Answers) -> None:
    answers.answer(CreateConversation(conversation("c"), (item("first"),)))
    answers.answer(CommitResponse(response("a", conversation="c")))
    answers.answer(AddItems("c", "", (item("between"), item("more"))))
    answers.answer(CommitResponse(response("b", conversation="c", output=())))
    expected = ["first", *names_of("a"), "between", "more", "b-in"]
    assert names(answers, conversation="c") == expected
    found = turns(answers, conversation="c")
    assert [len(turn.items) for turn in found] == [1, 2, 1, 1, 1]


def test_a_conversation_branches_at_the_turn_of_a_response(answers: Answers) -> None:
    answers.answer(CreateConversation(conversation("c")))
    for name in ("a", "b"):
        answers.answer(CommitResponse(response(name, conversation="c")))
    answers.answer(CommitResponse(response("branch", "a")))
    answers.answer(CommitResponse(response("on", "branch")))
    assert names(answers, response="on") == names_of("a", "branch", "on")
    assert names(answers, response="b") == names_of("a", "b")
    answers.answer(DeleteItem("c", "", "a-in"))
    assert names(answers, response="on") == ["a-out", *names_of("branch", "on")]
    answers.answer(DeleteConversation("c", ""))
    assert problem_of(answers, History("", response="on")).code == "conversation_not_found"


def test_a_failed_turn_is_no_part_of_its_conversation_and_a_deleted_one_stays_in_it(answers: Answers) -> None:
    answers.answer(CreateConversation(conversation("c")))
    for name, status in (("a", "completed"), ("b", "failed"), ("d", "cancelled")):
        answers.answer(CommitResponse(response(name, conversation="c", status=status)))
    answers.answer(DeleteResponse("a", ""))
    assert names(answers, conversation="c") == names_of("a", "d")
    assert names(answers, response="b") == names_of("a", "b")


def test_what_is_unfinished_or_unknown_cannot_be_continued(answers: Answers) -> None:
    answers.answer(BeginResponse(response("a", status="queued", output=())))
    assert problem_of(answers, History("", response="a")).status == 409
    assert problem_of(answers, History("", response="b")).code == "previous_response_not_found"
    assert problem_of(answers, History("", conversation="b")).code == "conversation_not_found"
    for gone in (response("c", "b"), response("c", conversation="b")):
        assert problem_of(answers, CommitResponse(gone)).status == 404


@pytest.mark.parametrize("fitting", [0, 1, 2, 3])
def test_of_a_history_that_is_too_long_the_newest_turns_are_read(
    fitting: int, connection: Connection
) -> None:
    answers = Answers(connection, "boot")
    answers.answer(CreateConversation(conversation("c")))
    answers.answer(CommitResponse(response("x", conversation="c")))
    for name, parent in (("a", None), ("b", "a"), ("d", "b")):
        answers.answer(CommitResponse(response(name, parent)))
        answers.answer(CommitResponse(response(f"{name}-c", conversation="c")))
    one_turn = len(item("a-in").body) + len(item("a-out").body)
    items = ItemsTable(connection)
    histories = Histories(connection, items, ConversationsTable(connection, items), one_turn * fitting)
    found = histories.of_response("d", "")
    kept = max(fitting, 1)  # the newest is always kept
    assert [turn.items[0].id for turn in found.turns] == ["a-in", "b-in", "d-in"][-kept:]
    assert found.left_out == 3 - kept
    read = histories.of_conversation("c", "")
    newest = ["x-in", "a-c-in", "b-c-in", "d-c-in"][-len(read.turns) :]
    assert [turn.items[0].id for turn in read.turns] == newest
    assert read.left_out == 4 - len(read.turns) > 0


def test_a_branch_that_fills_the_history_leaves_out_its_conversation(connection: Connection) -> None:
    answers = Answers(connection, "boot")
    answers.answer(CreateConversation(conversation("c")))
    answers.answer(CommitResponse(response("a", conversation="c")))
    answers.answer(CommitResponse(response("b", "a")))
    items = ItemsTable(connection)
    found = Histories(connection, items, ConversationsTable(connection, items), 1).of_response("b", "")
    assert [turn.items[0].id for turn in found.turns] == ["b-in"]
    assert found.left_out == 1
