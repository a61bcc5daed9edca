"""Splitting of a window's tokens into segments, and the start of the next window."""

from __future__ import annotations

import pytest

from greenroom.engine.sound.transcription.whisper.segments import split_window

FIRST = 1000


def stamp(seconds: float) -> int:
    return FIRST + round(seconds * 50)


@pytest.mark.parametrize(
    ("tokens", "segments", "frames", "whole"),
    [
        ([], [(0.0, 30.0)], 3000, True),
        ([1, 2], [(0.0, 30.0)], 3000, True),
        ([stamp(0), 1, 2, stamp(2)], [(0.0, 2.0)], 3000, True),
        ([stamp(0), 1, stamp(0)], [(0.0, 30.0)], 3000, True),
        ([stamp(0), 1, stamp(4), stamp(4), 2, stamp(9)], [(0.0, 4.0), (4.0, 9.0)], 3000, True),
        ([stamp(0), 1, stamp(4), stamp(5), 2], [(0.0, 4.0)], 400, False),
        ([stamp(0), 1, stamp(4), stamp(5)], [(0.0, 4.0)], 400, False),
        # Otherwise a model that ends its first segment at once would never finish.
        ([stamp(0), 1, stamp(0.1), stamp(0.1), 2], [(0.0, 0.1), (0.1, 30.0)], 3000, True),
    ],
)
def test_segments(tokens: list[int], segments: list[tuple[float, float]], frames: int, whole: bool) -> None:
    split = split_window(tokens, FIRST, 3000)
    assert [(round(each.start, 3), round(each.end, 3)) for each in split.segments] == segments
    assert (split.frames, split.is_whole) == (frames, whole)


def test_no_segment_ends_behind_its_window() -> None:
    split = split_window([stamp(0), 1, stamp(4), stamp(4), 2, stamp(9)], FIRST, 600)
    assert [(each.start, each.end) for each in split.segments] == [(0.0, 4.0), (4.0, 6.0)]
