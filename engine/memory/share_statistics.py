"""Statistics of one model's share of the memory account."""

from __future__ import annotations

from greenroom.engine.memory.share import Share
from greenroom.schemas.events.statistics import MemoryStatistics


def share_statistics(share: Share) -> MemoryStatistics:
    """Return the bytes charged to a model, by kind."""
    buffers = share.buffers
    arrays = buffers.cached, buffers.cached_limit
    return MemoryStatistics(share.weights, share.running, share.cached, *arrays, share.capacity())
