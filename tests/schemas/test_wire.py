"""What every protocol's converter takes and refuses, and how it names a fault."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from greenroom.schemas.problems import ProblemError
from greenroom.schemas.wire import make_wire_converter, structure


@attrs.frozen
class Item:
    """A part of a body."""

    name: str
    weight: float = 0.0
    count: int = 0
    fresh: bool = False


@attrs.frozen
class Body:
    """A body with a part of every kind."""

    items: tuple[Item, ...]
    options: dict[str, Any] | None = None


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
        ({"items": [], "options": []}, "options"),
        ([], None),
    ],
)
def test_a_wrong_type_is_a_400_that_names_the_field(body: Any, param: str | None) -> None:
    with pytest.raises(ProblemError) as refused:
        structure(body, Body, CONVERTER)
    assert (refused.value.problem.status, refused.value.problem.param) == (400, param)
