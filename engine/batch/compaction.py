"""When a batch is copied without the rows whose sequences were removed."""

from __future__ import annotations

import attrs


@attrs.define
class CompactionPolicy:
    """Weighs a copy of the cache against computing rows in vain whose sequences were removed.

    Args:
        threshold: Wasted work, in whole steps of the batch, that is worth one copy.
        wasted: Such work since the last copy.
    """

    threshold: float = 1.0
    wasted: float = 0.0

    def should_compact(self, rows: int, active: int) -> bool:
        """Count what one more step wastes; return whether a copy is worth while now.

        Args:
            rows: Rows of the batch, removed ones included.
            active: Rows whose sequences go on.
        """
        self.wasted += (rows - active) / rows
        if self.wasted < self.threshold:
            return False
        self.wasted = 0.0
        return True
