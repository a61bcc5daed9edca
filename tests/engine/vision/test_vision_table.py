"""The table of mlx-vlm's architectures is correct, and none is served with wrong results."""

from __future__ import annotations

import pytest

from greenroom.tests.support.architectures.vision.vision_answers import BROKEN, EQUAL, REFUSED, WRONG
from greenroom.tests.support.architectures.vision.vision_table import (
    TABLE,
    judge,
    judge_apart,
    names,
    page_of,
    read_table,
)


def test_the_table_names_every_architecture_of_the_installed_library() -> None:
    table = read_table()
    assert list(table) == names()
    assert page_of(table) == TABLE.read_text(encoding="utf-8")


def test_no_architecture_is_served_wrong() -> None:
    verdicts = [found.verdict for found in read_table().values()]
    assert not {WRONG, BROKEN} & set(verdicts)
    assert verdicts.count(EQUAL) > verdicts.count(REFUSED)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("idefics3", EQUAL), ("llava_next", REFUSED), ("klear", EQUAL), ("z1t", REFUSED)],
)
def test_what_the_table_says_is_found_anew(name: str, verdict: str) -> None:
    assert judge(name) == read_table()[name]
    assert read_table()[name].verdict == verdict


@pytest.mark.soak
@pytest.mark.parametrize("name", names())
def test_an_architecture_is_as_the_table_says(name: str) -> None:
    assert judge_apart(name).verdict == read_table()[name].verdict
