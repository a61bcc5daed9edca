"""Parsing of `POST /v1/completions`."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire.openai_chat import OPENAI, CompletionRequest
from greenroom.schemas.wire.wire import structure


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_prompts_come_in_four_forms(prompt: Any, prompts: tuple[Any, ...]) -> None:
    assert structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI).prompt.prompts == prompts


@pytest.mark.parametrize(
    "prompt", [None, 3, [], {}, [None], [1, "a"], [[1], "a", [None]], [True], [-1], ["a"] * 129]
)
def test_other_prompts_are_refused(prompt: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        structure({"model": "m", "prompt": prompt}, CompletionRequest, OPENAI)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, "prompt")
