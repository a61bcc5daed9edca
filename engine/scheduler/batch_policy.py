"""Which rows share a batched cache, where the longest row pads all others."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.batch.shape import Shape


@attrs.frozen
class BatchPolicy:
    """Weighs padding against one more pass over the weights.

    Args:
        reluctance: How many times the padding must exceed a pass before groups that exist are changed, and
            the other way round: each change copies caches.
    """

    reluctance: float = 1.5

    def place(self, groups: Sequence[Shape], joining: Shape, padding_per_pass: float) -> int | None:
        """Index of the group that rows join; None if a group of their own is cheaper.

        Args:
            padding_per_pass: Padded tokens that cost as much as a pass.
        """
        added = [padding(group, joining) for group in groups]
        best = min(range(len(groups)), key=added.__getitem__, default=None)
        return best if best is not None and added[best] <= padding_per_pass else None

    def merge(self, groups: Sequence[Shape], padding_per_pass: float) -> tuple[int, int] | None:
        """Two groups that had better be one.

        A copy reads what a pass over these rows reads, so it has paid for itself when a few passes are saved;
        only groups that are worth that are moved.
        """
        pairs = [
            (padding(groups[one], groups[other]), (one, other))
            for one in range(len(groups))
            for other in range(one + 1, len(groups))
        ]
        added, pair = min(pairs, default=(0, None))
        return pair if added * self.reluctance < padding_per_pass else None

    def split(self, lengths: Sequence[int], padding_per_pass: float) -> int | None:
        """Length up to which rows had better leave for a group of their own.

        Args:
            lengths: Of each row of a group.
        """
        ordered = sorted(lengths)
        saved = [
            (cut * (ordered[-1] - ordered[cut - 1]), ordered[cut - 1])
            for cut in range(1, len(ordered))
            if ordered[cut - 1] < ordered[cut]
        ]
        most, length = max(saved, default=(0, 0))
        return length if most > self.reluctance * padding_per_pass else None


def padding(one: Shape, other: Shape) -> int:
    """Padded tokens that two groups have as one and not as two."""
    (rows, length), (more_rows, other_length) = one, other
    return (rows if length < other_length else more_rows) * abs(length - other_length)
