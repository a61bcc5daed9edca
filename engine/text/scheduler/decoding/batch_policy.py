"""Policy that groups sequences into batched KV caches, in which the longest row pads all others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from greenroom.engine.text.batch.shape import Shape


@attrs.frozen
class BatchLimits:
    """Current limits on padding and copies of batches.

    Args:
        padding_per_pass: Padded tokens that cost as much as one more pass over the weights.
        copyable_tokens: Maximum number of tokens, padding included, that can be copied without a long stall.
    """

    padding_per_pass: float
    copyable_tokens: float = math.inf


@attrs.frozen
class BatchPolicy:
    """Weighs padding against one more pass over the weights.

    Args:
        hysteresis: Factor by which a change must pay off before existing batches are split or merged, since
            each change copies KV caches.
    """

    hysteresis: float = 1.5

    def place(self, batches: Sequence[Shape], arrival: Shape, limits: BatchLimits) -> int | None:
        """Return the index of the batch to add sequences to; None if a batch of their own is cheaper."""
        added = [
            padding(batch, arrival) if _copied(batch, arrival) <= limits.copyable_tokens else math.inf
            for batch in batches
        ]
        best = min(range(len(batches)), key=added.__getitem__, default=None)
        return best if best is not None and added[best] <= limits.padding_per_pass else None

    def merge(self, batches: Sequence[Shape], limits: BatchLimits) -> tuple[int, int] | None:
        """Return the indices of two batches that are cheaper as one; None if there are none.

        A copy reads as much memory as a pass over these rows, so it pays for itself after a few saved passes;
        only such batches are merged.
        """
        pairs = [
            (padding(batches[one], batches[other]), (one, other))
            for one in range(len(batches))
            for other in range(one + 1, len(batches))
            if _copied(batches[one], batches[other]) <= limits.copyable_tokens
        ]
        added, pair = min(pairs, default=(0, None))
        return pair if added * self.hysteresis < limits.padding_per_pass else None

    def split(self, lengths: Sequence[int], limits: BatchLimits) -> int | None:
        """Return the length up to which sequences are split off into a new batch; None to keep the batch.

        Args:
            lengths: Lengths in tokens of the batch's sequences.
        """
        ordered = sorted(lengths)
        if ordered and len(ordered) * ordered[-1] > limits.copyable_tokens:
            return None
        saved = [
            (count * (ordered[-1] - ordered[count - 1]), ordered[count - 1])
            for count in range(1, len(ordered))
            if ordered[count - 1] < ordered[count]
        ]
        most, length = max(saved, default=(0, 0))
        return length if most > self.hysteresis * limits.padding_per_pass else None


def _copied(one: Shape, other: Shape) -> int:
    """Return the tokens, padding included, of the merged batch."""
    return (one[0] + other[0]) * max(one[1], other[1])


def padding(one: Shape, other: Shape) -> int:
    """Return the padded tokens that merging two batches adds."""
    (rows, length), (more_rows, other_length) = one, other
    return (rows if length < other_length else more_rows) * abs(length - other_length)
