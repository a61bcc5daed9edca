"""Policy for compacting a batch, that is, dropping the rows of removed sequences."""

from __future__ import annotations

import attrs


@attrs.define
class CompactionPolicy:
    """Weighs a copy of the cache against computing rows of removed sequences.

    Args:
        threshold: Wasted work, in whole steps of the batch, that justifies one copy.
        wasted: Wasted work since the last copy, in whole steps.
    """

    threshold: float = 1.0
    wasted: float = 0.0

    def should_compact(self, rows: int, active: int) -> bool:
        """Add the waste of one more step; return whether to compact now.

        Args:
            rows: Rows of the batch, removed ones included.
            active: Rows of sequences that continue.
        """
        self.wasted += (rows - active) / rows
        if self.wasted < self.threshold:
            return False
        self.wasted = 0.0
        return True
