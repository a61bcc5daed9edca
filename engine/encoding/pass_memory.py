"""What forward passes take beside the weights, charged to the account before they begin."""

from __future__ import annotations

import mlx.core as mx

from greenroom.engine.memory.account import Share

MAX_BYTES = 512 * 1024 * 1024
"""Of one pass, unless a single row takes more."""
MAX_KEPT = 128 * 1024 * 1024
"""Bytes of freed arrays that MLX may keep beyond what it kept before: every pass has arrays of other sizes,
and kept for reuse they would soon fill the memory."""
MAX_HELD = 512 * 1024 * 1024
"""Bytes that are held from pass to pass."""
_WAIT = 0.02
"""Seconds after which another model may have freed what is missing."""
_SHARE_OF_FREE = 0.5
"""Of the memory that is free, one pass takes no more unless a single row does."""


class PassMemory:
    """One model's forward passes.

    Args:
        share: This model's share of the account.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self._kept = mx.get_cache_memory()
        self._held = 0

    def begin_work(self) -> None:
        """Remember what MLX keeps already, for whichever model."""
        self._kept = mx.get_cache_memory()

    def allowance(self) -> int:
        """Return the bytes that a pass of several rows may take now."""
        free = self.share.available()
        return MAX_BYTES if free is None else min(MAX_BYTES, int((free - self._held) * _SHARE_OF_FREE))

    def keep(self, nbytes: int) -> bool:
        """Charge bytes that are held from pass to pass; return whether there is room for them."""
        held, free = self._held + nbytes, self.share.available_for_running()
        if held > (MAX_HELD if free is None else min(MAX_HELD, int(free * _SHARE_OF_FREE))):
            return False
        fits = self.share.charge_running(held, new=True)
        if not fits and self.share.request_eviction(nbytes, _WAIT):
            fits = self.share.charge_running(held, new=True)
        self._held = held if fits else self._held
        return fits

    def unkeep(self, nbytes: int) -> None:
        """Release what was kept."""
        self._held -= nbytes
        self.share.charge_running(self._held)

    def fits_alone(self, nbytes: int) -> bool:
        """Return whether a pass could be computed if no other model computed anything."""
        capacity = self.share.capacity()
        return capacity is None or nbytes <= capacity

    def reserve(self, nbytes: int) -> bool:
        """Reserve the bytes of a pass; return whether they are there, having waited a moment if not."""
        if self.share.charge_running(self._held + nbytes, new=True):
            self.share.cancel_reservation()
            return True
        self.share.reserve(nbytes)
        if not self.share.request_eviction(nbytes, _WAIT):
            self.share.wait_for_change(_WAIT)
        return False

    def release(self) -> None:
        """Release what was reserved, and have MLX give back what it keeps of it if that is much."""
        self.share.charge_running(self._held)
        if mx.get_cache_memory() > self._kept + MAX_KEPT:
            self.clear()

    def clear(self) -> None:
        """Have MLX give back all that it keeps for reuse."""
        mx.clear_cache()
        self._kept = mx.get_cache_memory()

    def close(self) -> None:
        """Release everything."""
        self.share.close()
        mx.clear_cache()
