"""What copies of running caches may take: bytes of memory, and time for which streams stand still."""

from __future__ import annotations

import math

from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.memory.kv_memory import KvMemory
from greenroom.engine.scheduler.costs.cost_model import StepCosts
from greenroom.engine.scheduler.decoding.batch_policy import BatchLimits

MAX_COPY_MS = 150.0
"""Milliseconds for which streams may stand still for others to join; else those decode beside."""


class CopyBudget:
    """Says which copies may be made.

    Args:
        costs: What a copy takes, as far as copies were timed.
        memory: What the caches may take.
    """

    def __init__(self, costs: StepCosts, memory: KvMemory) -> None:
        self._costs = costs
        self._memory = memory

    @property
    def limits(self) -> BatchLimits:
        """What batches may cost at the moment."""
        size_model = self._memory.size_model
        per_token = self._costs.copy_ms(size_model.nbytes(1, GROWTH_STEP)) / GROWTH_STEP
        copyable = MAX_COPY_MS / per_token if per_token else math.inf
        return BatchLimits(self._costs.padding_per_pass, copyable)

    def is_short(self, nbytes: int) -> bool:
        """Return whether the copy of so many bytes holds nobody up for too long."""
        return self._costs.copy_ms(nbytes) <= MAX_COPY_MS
