"""When a batch is copied without the rows that have left it."""

from __future__ import annotations

import attrs


@attrs.define
class CompactionPolicy:
    """When rows that have left are cut out of a batch: a copy of the cache against computing them in vain.

    Args:
        patience: Wasted work, in whole steps of the batch, that is worth one copy.
    """

    threshold: float = 1.0
    wasted: float = 0.0

    def should_compact(self, rows: int, active: int) -> bool:
        """Asked once per step; remembers what was wasted since the last copy.

        Args:
            rows: Rows of the batch, left ones included.
        """
        self.wasted += (rows - active) / rows
        if self.wasted < self.threshold:
            return False
        self.wasted = 0.0
        return True
