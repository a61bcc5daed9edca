"""Stored chat completions: listed by model and metadata, updated, deleted."""

from __future__ import annotations

import pytest

from greenroom.actors.store.tables import Tables
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.stored import CompletionPage
from greenroom.tests.support.actors.stored_records import completion


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
