"""One model's share of the memory account."""

from __future__ import annotations

from greenroom.engine.memory.account import MemoryAccount
from greenroom.engine.memory.charges import Charges


class Share(Charges):
    """Memory charged to one model; only its own thread writes it, all threads may read it.

    Args:
        account: The account of all models, which gets a new, empty share.

    Attributes:
        buffers: Buffers charged to the model.
    """

    def __init__(self, account: MemoryAccount) -> None:
        super().__init__()
        self._account = account
        self._changed = account.changed
        with self._changed:
            self.buffers = account.buffers.open_part(self._on_buffers_requested)
            account.add(self)

    def available(self) -> int | None:
        """Return the bytes that this model's running caches and prefix cache may have together now."""
        with self._changed:
            return self._account.available(self)

    def capacity(self) -> int | None:
        """Return the bytes that running caches may have while no other model has any; None for no limit."""
        with self._changed:
            return self._account.capacity()

    def charge_weights(self, nbytes: int) -> int | None:
        """Charge the weights; return None, or the bytes available if the weights do not fit."""
        with self._changed:
            available = self._account.available_for_weights(self)
            if available is not None and nbytes > available:
                return available
            self.weights = nbytes
            self._account.evict_excess(self)
            dropped = self._account.record_change(self)
        dropped.clear()  # outside of the lock, since it takes time
        return None

    def charge_running(self, running: int, *, new: bool = False) -> bool:
        """Set the bytes of running caches; return whether they fit. A decrease always does.

        Args:
            running: New total in bytes.
            new: True for a newly admitted prompt, which must respect other models' reservations.
        """
        with self._changed:
            if running > self.running:
                available = self._account.available(self, respect_reservations=new)
                if available is not None and running + self.cached > available:
                    return False
            self.running = running
            dropped = self._account.record_change(self)
        dropped.clear()
        return True

    def charge_cached(self, cached: int) -> int:
        """Set the bytes of the prefix cache to as many of these as fit; return that number."""
        with self._changed:
            available = self._account.available(self, respect_reservations=True)
            if available is not None:
                cached = min(cached, max(0, available - self.running))
            self.cached = cached
            dropped = self._account.record_change(self)
        dropped.clear()
        return cached

    def available_for_running(self) -> int | None:
        """Return the bytes that running caches may have once all prefix caches are evicted, if limited."""
        with self._changed:
            available = self._account.available(self, respect_reservations=True)
            return None if available is None else available + self._account.cached_by_others(self)

    def request_eviction(self, missing: int, seconds: float) -> bool:
        """Request that other models evict cached prefixes, and wait up to `seconds` for a change.

        Returns:
            False, without waiting, if they have none.
        """
        with self._changed:
            requested = self._account.request_eviction(self, missing)
            if requested:
                self._changed.wait(seconds)
            return requested

    def others_running(self) -> bool:
        with self._changed:
            return self._account.running_of_others(self) > 0

    def wait_for_change(self, seconds: float) -> None:
        """Wait until any model reserves or releases memory, for at most `seconds`."""
        with self._changed:
            self._changed.wait(seconds)

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes for a waiting prompt, so that other models admit no prompts into this memory."""
        with self._changed:
            if not self.reservation:
                self.reservation_order = self._account.next_reservation_order()
            self.reservation = nbytes

    def cancel_reservation(self) -> None:
        """Cancel the reservation."""
        if self.reservation:
            with self._changed:
                self.reservation = 0
                self._changed.notify_all()

    def close(self) -> None:
        """Release all memory of the share."""
        with self._changed:
            self.weights = self.running = self.cached = self.reservation = 0
            self._account.close(self)
            self._account.record_change(self)
        self.buffers.close()

    def _on_buffers_requested(self) -> None:
        if self.on_eviction_request is not None:
            self.on_eviction_request()
