"""Splitting of a window's tokens into segments, and the start of the next window."""

from __future__ import annotations

import pytest

from greenroom.engine.sound.transcription.whisper_words import misses_speech, split_window

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


@pytest.mark.parametrize(
    ("tokens", "missed"),
    [
        # Seven words for 13.7 s, as whisper-tiny.en wrote where two more sentences were spoken.
        ([stamp(0), *range(10), stamp(13.7), stamp(13.7), *range(40), stamp(24)], True),
        ([stamp(0), *range(14), stamp(13.7), stamp(13.7), *range(40), stamp(24)], False),
        # One segment, and nothing of the 17 s behind it, as whisper-base wrote.
        ([stamp(0), *range(10), stamp(7)], True),
        ([stamp(0), *range(10), stamp(16.5)], True),
        ([stamp(0), *range(20), stamp(17)], False),
        # The rest is transcribed with the next window.
        ([stamp(0), *range(10), stamp(7), stamp(7), 1], False),
        ([stamp(0), 1, stamp(7), stamp(7), *range(20), stamp(24)], False),
        ([], True),
    ],
)
def test_a_long_stretch_with_hardly_any_text_is_noticed(tokens: list[int], missed: bool) -> None:
    assert misses_speech(split_window(tokens, FIRST, 2440), FIRST - 50, 2440) is missed
