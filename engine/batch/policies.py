"""Decisions of the batch loop, each a plain class: no arrays, no clock, so a test needs no model."""

from __future__ import annotations

from collections.abc import Sequence

import attrs


@attrs.frozen
class PrefillPolicy:
    """Which prompts advance in the next slice, and how far.

    Args:
        slice_tokens: Most tokens of a slice while rows are decoding, padding included.
        idle_tokens: Likewise while nothing else runs, and nobody can be kept waiting.
        padding: Largest share of a slice that may be padding.
    """

    slice_tokens: int = 512
    idle_tokens: int = 2048
    padding: float = 0.25

    def budget(self, decoding: bool) -> int:
        """Tokens that the next slice may hold."""
        return self.slice_tokens if decoding else self.idle_tokens

    def choose(self, remaining: Sequence[int], turn: int, budget: int) -> list[int]:
        """Indices of the prompts that share the next slice.

        Every second slice goes to the shortest prompt and the others to the oldest, so that neither a short
        prompt behind long ones nor a long one behind a stream of short ones waits for ever.

        Args:
            remaining: Tokens that each prompt still needs, the oldest first.
            turn: Number of the slice.
        """
        first = 0 if turn % 2 == 0 else min(range(len(remaining)), key=lambda i: remaining[i])
        chosen, longest, total = [first], remaining[first], remaining[first]
        by_likeness = sorted(range(len(remaining)), key=lambda i: abs(remaining[i] - remaining[first]))
        for index in by_likeness:
            if index == first:
                continue
            width = max(longest, remaining[index])
            area = width * (len(chosen) + 1)
            if area > budget or area - total - remaining[index] > self.padding * area:
                break
            chosen.append(index)
            longest, total = width, total + remaining[index]
        return chosen


@attrs.frozen
class GroupingPolicy:
    """Which rows decode together: those of similar length, because one pads the others.

    Args:
        ratio: How many times longer the longer of two may be.
        slack: Tokens by which lengths may differ at any rate.
    """

    ratio: float = 2.0
    slack: int = 256

    def place(self, lengths: Sequence[int], length: int) -> int | None:
        """Index of the group that a row of that length joins; None for a new one.

        Args:
            lengths: Length of the longest row of each group.
        """
        fitting = [i for i, other in enumerate(lengths) if self._similar(other, length)]
        return min(fitting, key=lambda i: abs(lengths[i] - length), default=None)

    def _similar(self, one: int, other: int) -> bool:
        longer, shorter = max(one, other), min(one, other)
        return longer <= self.ratio * shorter + self.slack


@attrs.define
class CompactionPolicy:
    """When rows that have left are cut out of a batch: a copy of the cache against computing them in vain.

    Args:
        patience: Wasted work, in whole steps of the batch, that is worth one copy.
    """

    patience: float = 1.0
    wasted: float = 0.0

    def should_compact(self, rows: int, live: int) -> bool:
        """Asked once per step; remembers what was wasted since the last copy.

        Args:
            rows: Rows of the batch, left ones included.
        """
        self.wasted += (rows - live) / rows
        if self.wasted < self.patience:
            return False
        self.wasted = 0.0
        return True
