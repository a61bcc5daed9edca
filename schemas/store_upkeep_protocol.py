"""Messages for the upkeep of the store: how it is, and what has been kept for long enough."""

from __future__ import annotations

import attrs


@attrs.frozen
class Prune:
    """Delete what has not been used for longer than the settings say, now. Reply: Pruned."""


@attrs.frozen
class Pruned:
    """How many were deleted."""

    responses: int = 0
    conversations: int = 0
    completions: int = 0


@attrs.frozen
class DescribeStore:
    """Reply: StoreStatus."""


@attrs.frozen
class StoreStatus:
    """What operators see of the store.

    Args:
        problem: Why what should be stored, or is to be read, fails now.
        hung_threads: Threads that fell silent and have not ended.
    """

    problem: str | None = None
    hung_threads: int = 0
