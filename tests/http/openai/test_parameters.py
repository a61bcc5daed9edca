"""Official parameters that are not honoured."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.answering.request_parameters import refuse_unsupported
from greenroom.http.openai.parameters import UNSUPPORTED_IN_CHAT, UNSUPPORTED_IN_COMPLETIONS
from greenroom.schemas.problems import ProblemError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "a", "format": "mp3"}),
        ("prediction", {"type": "content", "content": ""}),
        ("web_search_options", {}),
        ("verbosity", "low"),
        ("service_tier", "flex"),
        ("store", True),
    ],
)
def test_a_parameter_that_is_not_honoured_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ProblemError) as refused:
        refuse_unsupported({"model": "m", name: value}, UNSUPPORTED_IN_CHAT)
    problem = refused.value.problem
    assert (problem.status, problem.code, problem.param) == (400, "unsupported_parameter", name)


def test_neutral_values_are_accepted() -> None:
    for table in (UNSUPPORTED_IN_CHAT, UNSUPPORTED_IN_COMPLETIONS):
        refuse_unsupported(dict.fromkeys(table), table)
        for name, neutral in table.items():
            for value in neutral:
                refuse_unsupported({name: value}, table)
    refuse_unsupported({"store": False, "vendor": object()}, UNSUPPORTED_IN_CHAT)
