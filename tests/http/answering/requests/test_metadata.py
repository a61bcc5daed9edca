"""Limits of metadata, as in OpenAI's API."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.http.answering.request_parameters import parse_metadata
from greenroom.schemas.problems import ProblemError


def test_what_is_within_the_limits_stays_as_it_was() -> None:
    most = {f"{index:>064}": "v" * 512 for index in range(16)}
    assert parse_metadata(most) == most
    assert parse_metadata(None) == {}


@pytest.mark.parametrize(
    ("metadata", "param"),
    [
        ([], "metadata"),
        ("words", "metadata"),
        ({str(index): "" for index in range(17)}, "metadata"),
        ({"k" * 65: ""}, "metadata"),
        ({"k": "v" * 513}, "metadata.k"),
        ({"k": 1}, "metadata.k"),
        ({"k": None}, "metadata.k"),
    ],
)
def test_what_is_not_is_refused_by_name(metadata: Any, param: str) -> None:
    with pytest.raises(ProblemError) as error:
        parse_metadata(metadata)
    assert (error.value.problem.status, error.value.problem.param) == (400, param)
