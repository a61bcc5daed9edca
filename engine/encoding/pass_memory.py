"""Memory of forward passes, charged to the account before they start."""

from __future__ import annotations

import mlx.core as mx

from greenroom.engine.memory.share import Share

MAX_BYTES = 512 * 1024 * 1024
"""Limit of a pass's memory in bytes, unless a single row needs more."""
MAX_KEPT = 128 * 1024 * 1024
"""Limit, in bytes, of the growth of MLX's buffer cache during work.

Every pass has arrays of other sizes, so their buffers are rarely reused and would soon fill the memory.
"""
MAX_HELD = 512 * 1024 * 1024
"""Limit, in bytes, of memory held between passes."""
_WAIT = 0.02
"""Seconds to wait for memory that another model may free."""
_SHARE_OF_FREE = 0.5
"""Largest share of the free memory for one pass, unless a single row needs more."""


class PassMemory:
    """The memory of one model's forward passes.

    Args:
        share: The model's share of the memory account.
    """

    def __init__(self, share: Share) -> None:
        self.share = share
        self._kept = mx.get_cache_memory()
        self._held = 0

    def begin_work(self) -> None:
        """Record the current size of MLX's buffer cache, which other models may have filled."""
        self._kept = mx.get_cache_memory()

    def allowance(self) -> int:
        """Return the bytes that a pass of several rows may take now."""
        free = self.share.available()
        return MAX_BYTES if free is None else min(MAX_BYTES, int((free - self._held) * _SHARE_OF_FREE))

    def keep(self, nbytes: int) -> bool:
        """Charge bytes that are held between passes; return whether there is enough memory."""
        held, free = self._held + nbytes, self.share.available_for_running()
        if held > (MAX_HELD if free is None else min(MAX_HELD, int(free * _SHARE_OF_FREE))):
            return False
        fits = self.share.charge_running(held, new=True)
        if not fits and self.share.request_eviction(nbytes, _WAIT):
            fits = self.share.charge_running(held, new=True)
        self._held = held if fits else self._held
        return fits

    def unkeep(self, nbytes: int) -> None:
        """Release bytes that `keep` charged."""
        self._held -= nbytes
        self.share.charge_running(self._held)

    def fits_alone(self, nbytes: int) -> bool:
        """Return whether a pass would fit if no other model computed anything."""
        capacity = self.share.capacity()
        return capacity is None or nbytes <= capacity

    def reserve(self, nbytes: int) -> bool:
        """Reserve a pass's memory; on failure request evictions, wait briefly, and return False."""
        if self.share.charge_running(self._held + nbytes, new=True):
            self.share.cancel_reservation()
            return True
        self.share.reserve(nbytes)
        if not self.share.request_eviction(nbytes, _WAIT):
            self.share.wait_for_change(_WAIT)
        return False

    def release(self) -> None:
        """Release a pass's memory, and free MLX's buffer cache if it has grown too large."""
        self.share.charge_running(self._held)
        if mx.get_cache_memory() > self._kept + MAX_KEPT:
            self.clear()

    def clear(self) -> None:
        """Free MLX's buffer cache."""
        mx.clear_cache()
        self._kept = mx.get_cache_memory()

    def close(self) -> None:
        self.share.close()
        mx.clear_cache()
