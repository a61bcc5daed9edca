"""Rows on their way from prefill into a group."""

from __future__ import annotations

import attrs

from greenroom.engine.batch import caches
from greenroom.engine.batch.caches import Cache
from greenroom.engine.batch.row import Row


@attrs.frozen(eq=False)
class Joining:
    """Rows whose prompts are computed but for the last token, which is their first input.

    Args:
        cache: Plain for one row, batched for more.
    """

    rows: tuple[Row, ...]
    cache: Cache

    @property
    def batchable(self) -> bool:
        """Whether these rows can share a cache with others."""
        return len(self.rows) > 1 or caches.can_batch(self.cache)

    def without(self, row: Row) -> Joining | None:
        """What is left if a row does not come; None if it is nothing."""
        keep = [index for index, member in enumerate(self.rows) if member is not row]
        if len(keep) == len(self.rows):
            return self
        if not keep:
            return None
        if len(keep) == 1:
            return Joining((self.rows[keep[0]],), caches.extract(self.cache, keep[0]))
        caches.keep_rows(self.cache, keep)
        return Joining(tuple(self.rows[index] for index in keep), self.cache)
