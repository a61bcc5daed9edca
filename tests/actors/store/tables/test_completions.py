"""Stored chat completions: listed by model and metadata, updated, deleted."""

from __future__ import annotations

import pytest

from greenroom.actors.store.answers import Answers
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.protocols.completion_store_protocol import (
    CompletionPage,
    DeleteCompletion,
    FindCompletion,
    ListCompletions,
    SaveCompletion,
    UpdateCompletion,
)
from greenroom.tests.support.actors.stored_records import completion


@pytest.fixture
def four(answers: Answers) -> Answers:
    """Store completions a to d of two models, and one of another owner."""
    for name, model, metadata in (
        ("a", "m", {"k": "1"}),
        ("b", "n", {"k": "1", "l": "2"}),
        ("c", "m", {"k": "2"}),
        ("d", "m", {}),
    ):
        answers.answer(SaveCompletion(completion(name, model=model, metadata=metadata)))
    answers.answer(SaveCompletion(completion("e", owner="other")))
    return answers


def listed(answers: Answers, message: ListCompletions) -> tuple[str, bool]:
    found = answers.answer(message)
    assert isinstance(found, CompletionPage)
    return "".join(one.id for one in found.completions), found.has_more


def test_completions_are_listed_by_model_and_metadata_in_pages(four: Answers) -> None:
    assert listed(four, ListCompletions("")) == ("abcd", False)
    assert listed(four, ListCompletions("", limit=2)) == ("ab", True)
    assert listed(four, ListCompletions("", "b", order="desc")) == ("a", False)
    assert listed(four, ListCompletions("", model="m", limit=2)) == ("ac", True)
    assert listed(four, ListCompletions("", metadata={"k": "1"})) == ("ab", False)
    assert listed(four, ListCompletions("", metadata={"k": "1", "l": "2"})) == ("b", False)
    assert listed(four, ListCompletions("", "c", model="m", metadata={"k": "2"})) == ("", False)


def test_metadata_is_replaced_and_the_deleted_is_gone(four: Answers) -> None:
    changed = completion("d", metadata={"k": "1"})
    assert four.answer(UpdateCompletion("d", "", {"k": "1"})) == changed
    assert four.answer(FindCompletion("d", "")) == changed
    four.answer(DeleteCompletion("d", ""))
    for message in (
        FindCompletion("d", ""),
        UpdateCompletion("d", "", {}),
        DeleteCompletion("d", ""),
        FindCompletion("e", ""),
    ):
        with pytest.raises(ProblemError) as refused:
            four.answer(message)
        assert refused.value.problem.status == 404
