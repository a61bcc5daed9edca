"""Budget for copies of running KV caches: memory, and the time for which they stall streams."""

from __future__ import annotations

import math

from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.text.memory.kv_memory import KvMemory
from greenroom.engine.text.scheduler.costs.cost_model import StepCosts
from greenroom.engine.text.scheduler.decoding.batch_policy import BatchLimits

MAX_COPY_MS = 150.0
"""Most milliseconds that a copy may stall streams so that others can join; longer ones are avoided."""


class CopyBudget:
    """Decides which copies of KV caches are short enough not to stall running streams.

    Args:
        costs: Cost model with the measured copy speed.
        memory: Memory for the KV caches.
    """

    def __init__(self, costs: StepCosts, memory: KvMemory) -> None:
        self._costs = costs
        self._memory = memory

    @property
    def limits(self) -> BatchLimits:
        """Current limits on padding and copies of batches."""
        size_model = self._memory.size_model
        per_token = self._costs.copy_ms(size_model.nbytes(1, GROWTH_STEP)) / GROWTH_STEP
        copyable = MAX_COPY_MS / per_token if per_token else math.inf
        return BatchLimits(self._costs.padding_per_pass, copyable)

    def is_short(self, nbytes: int) -> bool:
        """Return whether a copy of `nbytes` stalls streams for an acceptable time."""
        return self._costs.copy_ms(nbytes) <= MAX_COPY_MS
