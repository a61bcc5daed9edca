"""The messages to the store beside the functions that it runs (`greenroom.actors.store.tables`)."""

from __future__ import annotations

import attrs

from greenroom.schemas.stored import EVERYBODY


@attrs.frozen
class CheckStoring:
    """Check, before anything is generated, that its owner could store the result. Reply: Committed."""

    owner: str = EVERYBODY


@attrs.frozen
class Committed:
    """Confirmation that the change is stored durably, or could be."""


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
