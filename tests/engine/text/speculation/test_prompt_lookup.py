"""Tests of prompt lookup: drafts that repeat what followed earlier in the text."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence
from typing import Any, cast

from greenroom.engine.text.drafters import PromptLookup
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.sequence import Sequence


def lookup_in(prompt: GenericSequence[int]) -> PromptLookup:
    text = cast(Any, None)  # nothing of it is decoded
    lookup = PromptLookup()
    lookup.begin(Sequence("0", tuple(prompt), 20, frozenset(), SamplingParameters(), text))
    lookup.add([])
    return lookup


def test_lookup_finds_what_followed_the_latest_match() -> None:
    assert not lookup_in([1, 2, 3, 4]).can_draft()
    assert lookup_in([1, 2, 3, 4, 5, 6, 7, 1, 2, 3]).lookup(6) == [4, 5, 6, 7, 1, 2]
    assert lookup_in([1, 2, 3, 4, 1, 2, 3, 9, 1, 2, 3]).lookup(2) == [9, 1]
    assert not lookup_in([7, 2, 3, 4, 9, 2, 3]).can_draft()  # two tokens are no match


def test_a_loop_is_drafted_on_beyond_its_end() -> None:
    assert lookup_in([5, 6, 7, 5, 6, 7, 5, 6, 7]).lookup(6) == [5, 6, 7, 5, 6, 7]
    assert lookup_in([5] * 12).lookup(6) == [5] * 6


def test_lookup_goes_on_with_the_answer() -> None:
    lookup = lookup_in([1, 2, 3, 4])
    for token in (9, 1, 2, 3):
        lookup.add([token])
    assert lookup.lookup(3) == [4, 9, 1]
    lookup.add([7])
    assert not lookup.can_draft()
    lookup.add([1, 2, 3])
    assert lookup.lookup(1) == [7]


def test_a_long_prompt_is_indexed_piece_by_piece() -> None:
    lookup = lookup_in([*range(3000), 10, 11, 12])
    pieces = 1
    while not lookup.can_draft():
        lookup.add([])
        pieces += 1
    assert pieces > 3
    assert lookup.lookup(2) == [13, 14]
