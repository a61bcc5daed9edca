"""One account of memory for all models of a process: weights, running caches and the prefix caches.

Models live on threads of their own. Each has a share of the account and charges what it takes beforehand: so
the sum never exceeds the limit, whichever thread is faster.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import attrs

from greenroom.engine.memory.buffer_budget import BufferBudget


@attrs.frozen
class AccountStatistics:
    """Bytes, now and at most.

    Args:
        running: Caches of prompts and answers under way, with copies that are being made of them.
        cached: Prefix caches.
        peak: The largest sum of `running` and `cached` there ever was.
        cached_buffers: Buffers of the prefix caches, now.
    """

    weights: int
    running: int
    cached: int
    peak: int
    cached_buffers: int


class MemoryAccount:
    """How much of the memory each model has. May be used from any thread.

    Args:
        limit: Bytes for weights, running caches and prefix caches together; None is no limit.
        kv_limit: Bytes for running caches and prefix caches alone; None is no limit of their own.
        buffer_limit: Buffers that the device lets the process have; None is no limit.
    """

    def __init__(
        self, limit: int | None = None, kv_limit: int | None = None, buffer_limit: int | None = None
    ) -> None:
        self.limit = limit
        self.kv_limit = kv_limit
        self.buffers = BufferBudget(buffer_limit)
        self._has_defaults = False
        self._shares: list[Share] = []
        self._changed = threading.Condition()
        self._peak = 0
        self._reservation_orders = itertools.count()

    def set_default_limits(self, limit: int, buffers: int | None) -> bool:
        """Set the limits of bytes and of buffers, each unless there is one; return whether nobody did yet."""
        with self._changed:
            is_first, self._has_defaults = not self._has_defaults, True
            if self.limit is None:
                self.limit = limit
            if self.buffers.limit is None:
                self.buffers.limit = buffers
            return is_first

    def open_share(self) -> Share:
        """Return a share for one more model, to which nothing is charged yet."""
        with self._changed:
            share = Share(self, self._changed)
            self._shares.append(share)
            return share

    def statistics(self) -> AccountStatistics:
        """Return a snapshot for operators and tests."""
        with self._changed:
            weights, running, cached = (
                sum(getattr(share, name) for share in self._shares)
                for name in ("weights", "running", "cached")
            )
            return AccountStatistics(weights, running, cached, self._peak, self.buffers.cached)

    # What follows is for shares, which hold the lock.

    def available(self, requester: Share, *, respect_reservations: bool = False) -> int | None:
        """Return the bytes that a share may have for running caches and prefix cache; None is no limit.

        Args:
            respect_reservations: Leave out what others have reserved earlier.
        """
        others = [share for share in self._shares if share is not requester]
        used = sum(share.running + share.cached for share in others)
        if respect_reservations:
            used += sum(
                share.reservation
                for share in others
                if share.reservation
                and (not requester.reservation or share.reservation_order < requester.reservation_order)
            )
        limits = []
        if self.kv_limit is not None:
            limits.append(self.kv_limit - used)
        if self.limit is not None:
            limits.append(self.limit - used - sum(share.weights for share in self._shares))
        return max(0, min(limits)) if limits else None

    def available_for_weights(self, requester: Share) -> int | None:
        """Return the bytes that are left for a model's weights; running caches of others come first."""
        if self.limit is None:
            return None
        others = [share for share in self._shares if share is not requester]
        return max(0, self.limit - sum(share.weights + share.running for share in others))

    def next_reservation_order(self) -> int:
        """Return a number larger than all before."""
        return next(self._reservation_orders)

    def record_change(self) -> None:
        """Record the largest sum, and wake the threads that wait for a change."""
        self._peak = max(self._peak, sum(share.running + share.cached for share in self._shares))
        self._changed.notify_all()

    def request_eviction(self, requester: Share, missing: int) -> bool:
        """Request that other models evict cached prefixes; return whether they have any."""
        holders = [share for share in self._shares if share is not requester and share.cached]
        for share in holders:
            share.eviction_request = max(share.eviction_request, missing)
            missing -= share.cached
            if share.on_eviction_request is not None:
                share.on_eviction_request()
            if missing <= 0:
                break
        return bool(holders)

    def cached_by_others(self, requester: Share) -> int:
        """Return the bytes of other models' prefix caches."""
        return sum(share.cached for share in self._shares if share is not requester)

    def running_of_others(self, requester: Share) -> int:
        """Return the bytes of other models' running caches."""
        return sum(share.running for share in self._shares if share is not requester)

    def close(self, share: Share) -> None:
        """Remove a share."""
        if share in self._shares:
            self._shares.remove(share)


class Share:
    """What is charged to one model. Written by its own thread only, and read by all.

    Attributes:
        weights: Bytes of the model itself.
        running: Bytes of caches of prompts and answers, and of copies under way.
        cached: Bytes of the prefix cache.
        reservation: Bytes that others leave free for a prompt that waits; 0 is none.
        reservation_order: Of reservations of all models; earlier ones come first.
        eviction_request: Bytes that another model requests of the prefix cache.
        on_eviction_request: Called, on any thread, when that happens; must not block.
        buffers: Buffers that this model has, beside the bytes.
    """

    def __init__(self, account: MemoryAccount, changed: threading.Condition) -> None:
        self.weights = self.running = self.cached = 0
        self.reservation = self.reservation_order = self.eviction_request = 0
        self.on_eviction_request: Callable[[], None] | None = None
        self.buffers = account.buffers.open_part(self._on_buffers_requested)
        self._account = account
        self._changed = changed

    def available(self) -> int | None:
        """Return the bytes that running caches and prefix cache of this model may have together now."""
        with self._changed:
            return self._account.available(self)

    def capacity(self) -> int | None:
        """Return the bytes that they could have if no other model had any; None is no limit."""
        with self._changed:
            account = self._account
            weights = sum(share.weights for share in account._shares)
            limits = [account.kv_limit, None if account.limit is None else account.limit - weights]
            return min((max(0, limit) for limit in limits if limit is not None), default=None)

    def charge_weights(self, nbytes: int) -> int | None:
        """Charge the weights; return None, or the bytes that there are if they do not fit."""
        with self._changed:
            available = self._account.available_for_weights(self)
            if available is not None and nbytes > available:
                return available
            self.weights = nbytes
            self._account.record_change()
            return None

    def charge_running(self, running: int, *, new: bool = False) -> bool:
        """Set the bytes of running caches; return whether they fit, which less than before always does.

        Args:
            new: For a prompt that is admitted, which must respect the reservations of other models.
        """
        with self._changed:
            if running > self.running:
                available = self._account.available(self, respect_reservations=new)
                if available is not None and running + self.cached > available:
                    return False
            self.running = running
            self._account.record_change()
            return True

    def charge_cached(self, cached: int) -> int:
        """Set the bytes of the prefix cache to as many of these as fit; return how many."""
        with self._changed:
            available = self._account.available(self, respect_reservations=True)
            if available is not None:
                cached = min(cached, max(0, available - self.running))
            self.cached = cached
            self._account.record_change()
            return cached

    def available_for_running(self) -> int | None:
        """Return the bytes that running caches of this model may have if all prefix caches are evicted."""
        with self._changed:
            available = self._account.available(self, respect_reservations=True)
            return None if available is None else available + self._account.cached_by_others(self)

    def request_eviction(self, missing: int, seconds: float) -> bool:
        """Request that other models evict cached prefixes, and wait for that.

        Returns:
            False, at once, if they have none.
        """
        with self._changed:
            requested = self._account.request_eviction(self, missing)
            if requested:
                self._changed.wait(seconds)
            return requested

    def others_running(self) -> bool:
        """Return whether other models have running caches."""
        with self._changed:
            return self._account.running_of_others(self) > 0

    def wait_for_change(self, seconds: float) -> None:
        """Wait for a change of the account."""
        with self._changed:
            self._changed.wait(seconds)

    def reserve(self, nbytes: int) -> None:
        """Reserve bytes for a prompt that waits for other models; they admit nothing that needs these."""
        with self._changed:
            if not self.reservation:
                self.reservation_order = self._account.next_reservation_order()
            self.reservation = nbytes

    def cancel_reservation(self) -> None:
        """Cancel the reservation for a prompt that waits no more."""
        if self.reservation:
            with self._changed:
                self.reservation = 0
                self._changed.notify_all()

    def close(self) -> None:
        """Release everything."""
        with self._changed:
            self.weights = self.running = self.cached = self.reservation = 0
            self._account.close(self)
            self._changed.notify_all()
        self.buffers.close()

    def _on_buffers_requested(self) -> None:
        if self.on_eviction_request is not None:
            self.on_eviction_request()
