"""Pagination of lists."""

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.datastructures import MultiDict

from greenroom.http.answering.request_parameters import ListQuery, parse_list_query, parse_metadata
from greenroom.schemas.problems import ProblemError


def test_a_page_is_what_the_query_asks_for() -> None:
    args = MultiDict({"after": "msg_1", "limit": "100", "order": "asc"})
    assert parse_list_query(args, "desc") == ListQuery("msg_1", 100, "asc")


def test_without_a_query_a_page_has_twenty_entries_in_the_lists_own_order() -> None:
    assert parse_list_query(MultiDict(), "asc") == ListQuery(None, 20, "asc")
    assert parse_list_query(MultiDict({"after": ""}), "desc") == ListQuery(None, 20, "desc")


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "ten", "", "٣", "9" * 5_000])
def test_a_limit_that_is_none_is_refused_by_name(limit: str) -> None:
    with pytest.raises(ProblemError) as error:
        parse_list_query(MultiDict({"limit": limit}), "asc")
    assert (error.value.problem.status, error.value.problem.param) == (400, "limit")


def test_an_unknown_order_is_refused_by_name() -> None:
    with pytest.raises(ProblemError) as error:
        parse_list_query(MultiDict({"order": "random"}), "asc")
    assert (error.value.problem.status, error.value.problem.param) == (400, "order")


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
