"""From a window's tokens to segments with times, and to where the next window begins.

Source: arXiv:2212.04356, section 4.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

SECONDS_PER_TIMESTAMP = 0.02
FRAMES_PER_TIMESTAMP = 2
_LEAST_PROGRESS = 100
"""Frames (of 10 ms) that each window goes on at least: a model may end its first segment at once, always."""


@attrs.frozen
class TimedTokens:
    """A segment in tokens.

    Args:
        start: Seconds from the window's beginning; `end` likewise.
    """

    tokens: tuple[int, ...]
    start: float
    end: float


@attrs.frozen
class SplitWindow:
    """A window's segments.

    Args:
        frames: How far it was understood, in frames of 10 ms.
        is_whole: It was to its end.
    """

    segments: tuple[TimedTokens, ...]
    frames: int
    is_whole: bool


def split_window(tokens: Sequence[int], first_timestamp: int, frames: int) -> SplitWindow:
    """Split what was written where one segment's end meets the next one's beginning.

    Args:
        frames: Length of the window.
    """
    stamps = [token >= first_timestamp for token in tokens]
    seconds = frames / 100
    cuts = [at + 1 for at, (one, other) in enumerate(pairwise(stamps)) if one and other]
    ends_in_one_stamp = stamps[-2:] == [False, True]
    if not cuts:
        # No two stamps meet: all is one segment, up to the last stamp if that says more than "0.00".
        last = next((token for token in reversed(tokens) if token > first_timestamp), None)
        end = seconds if last is None else min(seconds, (last - first_timestamp) * SECONDS_PER_TIMESTAMP)
        return SplitWindow((TimedTokens(tuple(tokens), 0.0, end),), frames, True)
    if ends_in_one_stamp:
        cuts.append(len(tokens))
    segments = []
    for start, end in pairwise([0, *cuts]):
        piece = tokens[start:end]
        times = [(token - first_timestamp) * SECONDS_PER_TIMESTAMP for token in (piece[0], piece[-1])]
        segments.append(TimedTokens(tuple(piece), min(times[0], seconds), min(times[1], seconds)))
    if ends_in_one_stamp:
        return SplitWindow(tuple(segments), frames, True)
    # What was begun behind the last pair is heard again, from there.
    understood = (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES_PER_TIMESTAMP
    if not _LEAST_PROGRESS <= understood < frames:
        rest = tuple(tokens[cuts[-1] :])
        began = min((rest[0] - first_timestamp) * SECONDS_PER_TIMESTAMP, seconds)
        return SplitWindow((*segments, TimedTokens(rest, began, seconds)), frames, True)
    return SplitWindow(tuple(segments), understood, False)
