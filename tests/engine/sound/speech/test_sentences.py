"""Splitting of text into pieces that are spoken one after another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.sound.speech.speech_adapter import LONGEST, cut_into_pieces, weigh


def letters(text: str) -> str:
    return "".join(text.split())


@given(st.text(max_size=2_000))
def test_nothing_is_lost_and_no_piece_is_too_long(text: str) -> None:
    pieces = cut_into_pieces(text)
    assert letters("".join(pieces)) == letters(text)
    assert all(piece.strip() and weigh(piece) <= LONGEST for piece in pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", ()),
        ("Hello", ("Hello",)),
        ("Hi. This is a short one. So is this.", ("Hi.", "This is a short one. So is this.")),
        ("Dr. Smith met J. Doe. They talked.", ("Dr. Smith met J. Doe.", "They talked.")),
        ("It costs 3.50 now! Really?", ("It costs 3.50 now!", "Really?")),
        ("A line\nand another\n\n\nand a third", ("A line", "and another and a third")),
        pytest.param(f"A long{' ' * 1_000_000}pause", ("A long pause",), id="pause"),
        ('He said: "Go away." She went.', ('He said: "Go away."', "She went.")),
        ("今日は。元気ですか？はい。", ("今日は。", "元気ですか？ はい。")),  # noqa: RUF001
    ],
)
def test_sentences_are_found(text: str, pieces: tuple[str, ...]) -> None:
    assert cut_into_pieces(text) == pieces


def test_a_long_sentence_is_cut_at_its_clauses_then_at_words_then_anywhere() -> None:
    clause = "and the waves rolled on over the sand and the stones of that shore"
    clauses = cut_into_pieces(", ".join([clause] * 10))
    assert len(clauses) == 4
    assert all(piece.endswith(("shore,", "shore")) for piece in clauses)
    words = cut_into_pieces("word " * 200)
    assert all(piece.replace("word", "").strip() == "" for piece in words)
    assert len(words) == 5
    assert cut_into_pieces("x" * 1_000) == ("x" * LONGEST,) * 4 + ("x" * (1_000 - 4 * LONGEST),)


def test_digits_and_ideographs_weigh_what_is_spoken_of_them() -> None:
    assert all(len(piece) <= LONGEST / 3 for piece in cut_into_pieces("海" * 1_000 + "7" * 1_000))
