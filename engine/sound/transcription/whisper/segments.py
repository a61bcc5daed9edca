"""Splitting of a window's tokens into timed segments, and the start of the next window.

Source: arXiv:2212.04356, section 4.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs

SECONDS_PER_TIMESTAMP = 0.02
FRAMES_PER_TIMESTAMP = 2
_LEAST_PROGRESS = 100
"""Smallest advance per window, in frames of 10 ms: a model may always end its first segment at once."""
_SPARSE_SECONDS = 8.0
_SPARSE_TOKENS = 1.0
"""A longer stretch with fewer tokens per second has hardly been heard: slow speech has two."""


@attrs.frozen
class TimedTokens:
    """A segment's tokens and times.

    Args:
        start: Start in seconds from the window's beginning.
        end: End in seconds from the window's beginning.
    """

    tokens: tuple[int, ...]
    start: float
    end: float


@attrs.frozen
class SplitWindow:
    """A window's segments.

    Args:
        frames: Length of the transcribed part, in frames of 10 ms.
        is_whole: True if the window was transcribed to its end.
    """

    segments: tuple[TimedTokens, ...]
    frames: int
    is_whole: bool


def split_window(tokens: Sequence[int], first_timestamp: int, frames: int) -> SplitWindow:
    """Split a window's tokens at pairs of time stamps: one segment's end and the next one's start.

    Args:
        first_timestamp: Id of the token `<|0.00|>`.
        frames: Length of the window, in frames of 10 ms.
    """
    stamps = [token >= first_timestamp for token in tokens]
    seconds = frames / 100
    cuts = [at + 1 for at, (one, other) in enumerate(pairwise(stamps)) if one and other]
    ends_in_one_stamp = stamps[-2:] == [False, True]
    if not cuts:
        # Without a pair, all is one segment, up to the last stamp if that is later than "0.00".
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
    # The incomplete segment after the last pair is transcribed again in the next window.
    understood = (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES_PER_TIMESTAMP
    if not _LEAST_PROGRESS <= understood < frames:
        rest = tuple(tokens[cuts[-1] :])
        began = min((rest[0] - first_timestamp) * SECONDS_PER_TIMESTAMP, seconds)
        return SplitWindow((*segments, TimedTokens(rest, began, seconds)), frames, True)
    return SplitWindow(tuple(segments), understood, False)


def misses_speech(split: SplitWindow, end: int, frames: int) -> bool:
    """Return whether a long stretch of a window has hardly any text, within a segment or behind the last.

    Args:
        end: Id of the token that ends a text; lower ids are text.
        frames: Length of the window, in frames of 10 ms.
    """
    stretches = [
        (each.end - each.start, sum(token < end for token in each.tokens)) for each in split.segments
    ]
    if split.is_whole:
        stretches.append((frames / 100 - split.segments[-1].end, 0))
    return any(
        seconds >= _SPARSE_SECONDS and count < seconds * _SPARSE_TOKENS for seconds, count in stretches
    )
