"""Body converters of all protocols: accepted and refused values, and the field names in errors."""

from __future__ import annotations

from typing import Annotated, Any

import attrs
import pytest

from greenroom.schemas.problems import MAX_DETAIL, MAX_PARAM, Problem, ProblemError
from greenroom.schemas.wire.wire import AtMost, WireError, make_wire_converter, structure


@attrs.frozen
class Item:
    """An element of a body."""

    name: str
    weight: float = 0.0
    count: int = 0
    fresh: bool = False


@attrs.frozen
class Body:
    """A body with a field of every type."""

    items: Annotated[tuple[Item, ...], AtMost(3)]
    options: dict[str, Any] | None = None


@attrs.frozen
class Counts:
    """A body with an array."""

    counts: tuple[int, ...]


CONVERTER = make_wire_converter()


def test_json_becomes_classes_and_unknown_fields_are_ignored() -> None:
    body = {"items": [{"name": "a", "weight": 1, "count": 2, "fresh": True, "vendor": 1}], "vendor": []}
    assert structure(body, Body, CONVERTER) == Body((Item("a", 1.0, 2, True),))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [{"name": "a"}, {}]}, "items[1].name"),
        ({"items": [{"name": 1}]}, "items[0].name"),
        ({"items": [{"name": "a", "weight": "1"}]}, "items[0].weight"),
        ({"items": [{"name": "a", "weight": True}]}, "items[0].weight"),
        ({"items": [{"name": "a", "weight": 10**400}]}, "items[0].weight"),
        ({"items": [{"name": "a", "count": 1.5}]}, "items[0].count"),
        ({"items": [{"name": "a", "count": True}]}, "items[0].count"),
        ({"items": [{"name": "a", "fresh": 1}]}, "items[0].fresh"),
        ({"items": ["a"]}, "items[0]"),
        ({"items": "a"}, "items"),
        ({"items": {"name": "a"}}, "items"),
        ({"items": [{"name": "a"}] * 4}, "items"),
        ({"items": [{"name": "a"}, 1, {}]}, "items[1]"),
        ({"items": [], "options": []}, "options"),
        ([], None),
    ],
)
def test_a_wrong_type_is_a_400_that_names_the_field(body: Any, param: str | None) -> None:
    with pytest.raises(ProblemError) as refused:
        structure(body, Body, CONVERTER)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


def test_nothing_is_read_behind_the_first_wrong_item() -> None:
    converter, read = make_wire_converter(), []

    def count(value: Any, _: Any) -> int:
        read.append(value)
        if value < 0:
            raise WireError("is negative")
        return int(value)

    converter.register_structure_hook(int, count)
    with pytest.raises(ProblemError, match=r"`counts\[2\]` is negative"):
        structure({"counts": [0, 1, -2, -3, 4]}, Counts, converter)
    assert read == [0, 1, -2]


def test_a_problem_quotes_no_more_of_a_value_than_people_read() -> None:
    problem = Problem(400, "code", "x" * 10**6, "y" * 10**6)
    assert (len(problem.detail), len(problem.param or "")) == (MAX_DETAIL, MAX_PARAM)
    assert Problem(400, "code", "x" * MAX_DETAIL, "y").detail == "x" * MAX_DETAIL
