"""Idle work of an engine, limited to unused memory."""

from __future__ import annotations

from greenroom.engine.loading.batching.background_check import BackgroundCheck
from greenroom.engine.loading.batching.invariance_check import ROWS, TOKENS
from greenroom.engine.text.memory.kv_memory import KvMemory

_RETRY = 10.0
"""Seconds until the next attempt after memory was short."""


class IdleWork:
    """Runs the rest of a model's batch-invariance check, and releases its memory on request.

    Args:
        check: Background check; None if there is nothing to do.
        memory: Memory account charged for the check's caches.
    """

    def __init__(self, check: BackgroundCheck | None, memory: KvMemory) -> None:
        self._check = check
        self._memory = memory
        self._is_short = False
        if check is not None and not self._reserve(check):
            check.pause()

    @property
    def delay(self) -> float | None:
        """Seconds without requests after which `advance` is due; None if there is nothing to do."""
        delay = None if self._check is None else self._check.delay
        return max(delay, _RETRY) if delay is not None and self._is_short else delay

    def advance(self) -> None:
        """Compute one pass if there is memory for it."""
        if self._check is None or self._check.delay is None:
            return
        self._is_short = not self._reserve(self._check)
        if self._is_short:
            return
        self._check.advance()
        if self._check.delay is None:
            self.release()
            self._check = None

    def release(self) -> None:
        self._memory.reclaim()

    def _reserve(self, check: BackgroundCheck) -> bool:
        return self._memory.reserve_idle(self._memory.size_model.nbytes(ROWS, TOKENS), check.pause)
