"""Store messages for maintenance: status and retention."""

from __future__ import annotations

import attrs


@attrs.frozen
class Prune:
    """Delete everything that has been unused for longer than the retention setting. Reply: Pruned."""


@attrs.frozen
class Pruned:
    """The numbers of deleted objects."""

    responses: int = 0
    conversations: int = 0
    completions: int = 0


@attrs.frozen
class DescribeStore:
    """Request the store's status. Reply: StoreStatus."""


@attrs.frozen
class StoreStatus:
    """The status of the store, for operators.

    Args:
        problem: Reason why reads or writes fail now; None if they work.
        hung_threads: Number of hung threads that have not ended.
    """

    problem: str | None = None
    hung_threads: int = 0
