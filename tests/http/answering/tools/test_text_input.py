"""The text argument of a tool call, decoded as a whole and in pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.http.answering.tools import TextInputReader, text_of
from greenroom.schemas.messages.messages import arguments_of

CUTS = st.lists(st.integers(0, 10_000), max_size=8)


def read_in_pieces(arguments: str, cuts: list[int]) -> str:
    reader, at = TextInputReader(), 0
    text = ""
    for cut in [*sorted(cut % (len(arguments) + 1) for cut in cuts), len(arguments)]:
        text += reader.feed(arguments[at:cut])
        at = cut
    return text + reader.finish()


@given(text=st.text(), ascii_only=st.booleans(), spaced=st.booleans(), cuts=CUTS)
def test_any_text_comes_back(text: str, ascii_only: bool, spaced: bool, cuts: list[int]) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only, indent=2 if spaced else None)
    assert text_of(arguments) == text
    assert read_in_pieces(arguments, cuts) == text
    assert text_of(arguments_of(text)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"code": "1 + 1"}', "1 + 1"),
        ('{"input": "1 + 1", "why": "asked"}', "1 + 1"),
        ('{"a": "x", "b": "y"}', '{"a": "x", "b": "y"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("{}", "{}"),
        ('"x"', '"x"'),
        ('{"code": "1 +', '{"code": "1 +'),
        ('{"input": "1 +', "1 +"),
        ('{"input": "1 \\', "1 "),
        ('{"inp', ""),
        ("", ""),
    ],
)
def test_other_arguments_are_not_lost(arguments: str, text: str) -> None:
    assert text_of(arguments) == text
    for cut in range(len(arguments)):
        assert read_in_pieces(arguments, [cut]) == text


def test_pieces_come_as_they_are_written() -> None:
    reader = TextInputReader()
    pieces = [reader.feed(piece) for piece in ('{"in', 'put": "a\\', "n\\ud83d", "\\ude00b", '"}')]
    assert pieces == ["", "a", "\n", "😀b", ""]
