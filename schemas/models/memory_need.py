"""The memory that a load needs: one judgement for the pool, its plans and the lists of models."""

from __future__ import annotations

import attrs

from greenroom.schemas.models.capabilities import ModelType


@attrs.frozen
class MemoryNeed:
    """The memory that a model needs in an otherwise empty server, in bytes.

    Args:
        total: Bytes that its load needs, with those that are only estimated.
        least: Part of these that is certain; no model is refused for an estimate alone.
        granted: Bytes that the pool grants it.
        limit: Bytes that all models may have together; None for no limit.
        alone: True if it exceeds the limit, but not what the device can give: no other model stays beside it.
    """

    total: int
    least: int
    granted: int
    limit: int | None = None
    alone: bool = False

    @property
    def estimated(self) -> int:
        """Granted bytes that are only estimated."""
        return max(0, self.granted - self.least)

    @property
    def fits(self) -> bool:
        """True if an empty server has the memory."""
        return self.limit is None or self.granted <= self.limit


def memory_need(kind: ModelType, total: int, least: int, limit: int | None, most: int | None) -> MemoryNeed:
    """Return the need of a model of some kind.

    A text model that exceeds the default limit, but not what the device can give, gets all of that limit: it
    is loaded alone. A model with vision is not, since its images need memory that nobody can foresee.
    Source: document 002 of the specification, "Memory-Aware Loading".

    Args:
        most: Bytes that a model may have while it is alone; None for no more than the limit.
    """
    if limit is not None and least <= limit < total:
        return MemoryNeed(total, least, limit, limit)
    if kind != "text" or limit is None or most is None or not limit < total <= most:
        return MemoryNeed(total, least, total, limit)
    return MemoryNeed(total, least, limit, limit, alone=True)
