"""Counting a body's JSON values while it arrives."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.http.guard import json_counter
from greenroom.http.guard.json_counter import JsonCounter
from greenroom.schemas.problems import ProblemError

JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='\\"[]{},:a\n\u00e9\U0001f600\ud800'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(alphabet='\\":,a'), inner),
    max_leaves=20,
)


def counted(data: bytes, cuts: list[int] | None = None) -> JsonCounter:
    counter = JsonCounter()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    for start, end in itertools.pairwise(edges):
        counter.feed(data[start:end])
    return counter


def contents(value: Any) -> tuple[int, int, int]:
    """Return the numbers of containers, members and commas in a value's JSON."""
    if not isinstance(value, list | dict):
        return 0, 0, 0
    children = [contents(child) for child in (value.values() if isinstance(value, dict) else value)]
    containers, members, commas = (sum(column) for column in zip((0, 0, 0), *children, strict=True))
    own = len(value) if isinstance(value, dict) else 0
    return containers + 1, members + own, commas + max(0, len(value) - 1)


@settings(max_examples=50)
@given(JSON, st.booleans(), st.lists(st.integers(0, 10_000), max_size=4))
def test_the_counts_are_those_of_the_decoded_value_wherever_the_body_is_cut(
    value: Any, ascii_only: bool, cuts: list[int]
) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    counter = counted(data, cuts)
    assert counter.size == len(data)
    assert (counter.containers, counter.members, counter.values) == contents(value)
    escaped = ascii_only and any(ord(unit) >= 0xD800 for unit in json.dumps(value, ensure_ascii=False))
    assert counter.has_surrogates or not escaped


@pytest.mark.parametrize(
    ("limit", "data", "named"),
    [
        ("MAX_DEPTH", lambda n: b"[" * n + b"]" * n, "levels deep"),
        ("MAX_CONTAINERS", lambda n: b"[" + b"[]," * (n - 2) + b"[]]", "arrays and objects"),
        ("MAX_MEMBERS", lambda n: b"{" + b'"a":1,' * n + b"}", "members"),
        ("MAX_STRINGS", lambda n: b"[" + b'"",' * (n - 1) + b'""]', "strings"),
        ("MAX_VALUES", lambda n: b"[" + b"1," * n + b"1]", "values"),
        ("MAX_ESCAPES", lambda n: b'"' + b"\\n" * n + b'"', "escaped characters"),
        ("MAX_WIDE_BYTES", lambda n: b'"' + "\U0001f600".encode() + b"a" * (n - 4) + b'"', "U+FFFF"),
        ("MAX_WIDE_BYTES", lambda n: b'"' + b"a" * (n - 12) + rb'\ud83d\ude00"', "U+FFFF"),
        (
            "MAX_WIDE_BYTES",
            lambda n: (
                b"["
                + (b'"' + b"a" * 65_532 + b'\xf0\x9f\x98\x80",') * (n // 65_536 - 1)
                + b'"\xf0'
                + b"a" * (65_535 + n % 65_536)
                + b'"]'
            ),
            "U+FFFF",
        ),
    ],
)
def test_too_much_is_refused_before_it_is_decoded(limit: str, data: Any, named: str) -> None:
    most = getattr(json_counter, limit)
    counted(data(most))
    with pytest.raises(ProblemError) as refused:
        counted(data(most + 1))
    assert refused.value.problem.status == 413
    assert named in refused.value.problem.detail
    assert str(most) in refused.value.problem.detail or limit == "MAX_WIDE_BYTES"


def test_what_stands_in_strings_is_no_structure() -> None:
    text = json.dumps({"csv": '1,2,[{:\\"' * 300_000}).encode()
    counter = counted(text)
    assert (counter.containers, counter.members, counter.values) == (1, 1, 0)


def test_large_strings_may_stand_beside_one_with_an_emoji() -> None:
    letters = b'"' + "\u4e2d".encode() * (4 << 20) + b'"'
    images = b'"' + b"iVBORw0KGgo=" * (2 << 20) + b'"'
    counted(b"[" + b",".join([images, '"\U0001f600"'.encode(), letters, rb'"\ud83d\ude00"', images]) + b"]")


@pytest.mark.parametrize(
    ("data", "is_long"),
    [
        (b"[" + b"9" * 309 + b",1]", False),
        (b"[" + b"9" * 310 + b"]", True),
        (b"1" * 65_300 + b",", True),
        (b" " * 65_400 + b"1" * 310, True),
        (b'["' + b"1" * 1000 + b'"]', False),
        (b"[" + b"123456789," * 10_000 + b"1]", False),
    ],
)
def test_numbers_of_too_many_digits_are_noted_wherever_the_body_is_cut(data: bytes, is_long: bool) -> None:
    assert counted(data).has_long_numbers == is_long
    assert counted(data, [len(data) - 155]).has_long_numbers == is_long
