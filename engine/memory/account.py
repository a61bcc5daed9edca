"""Memory account of all models in a process: weights, running caches and prefix caches.

Models run on their own threads. Each has a `Share` of the account and charges its memory before it allocates:
so the sum never exceeds the limit, whichever thread is faster.
"""

from __future__ import annotations

import itertools
import threading

import attrs

from greenroom.engine.memory.buffer_budget import BufferBudget
from greenroom.engine.memory.charges import Charges
from greenroom.engine.memory.held_memory import HeldMemory, HeldPiece


@attrs.frozen
class AccountStatistics:
    """Memory usage in bytes, current and peak.

    Args:
        weights: Bytes of all models' weights.
        running: Bytes of the caches of running prompts and answers, including copies in progress.
        cached: Bytes of the prefix caches.
        held: Bytes of host memory that unloaded models have left for their next loads.
        peak: Largest sum of `running` and `cached` so far.
        cached_buffers: Number of buffers in the prefix caches.
    """

    weights: int
    running: int
    cached: int
    held: int
    peak: int
    cached_buffers: int


class MemoryAccount:
    """Memory account of all models. Thread-safe.

    Args:
        limit: Limit on weights, running caches and prefix caches together, in bytes; None for no limit.
        kv_limit: Limit on running caches and prefix caches together, in bytes; None for no limit.
        buffer_limit: Limit of the device on the process's buffers; None for no limit.
    """

    def __init__(
        self, limit: int | None = None, kv_limit: int | None = None, buffer_limit: int | None = None
    ) -> None:
        self.limit = limit
        self.kv_limit = kv_limit
        self.most: int | None = None
        """Bytes that a model may have while it is alone; None for no more than `limit`."""
        self.buffers = BufferBudget(buffer_limit)
        self._has_defaults = False
        self._shares: list[Charges] = []
        self.changed = threading.Condition()
        """The lock of all charges, notified of each change."""
        self.held = HeldMemory(self.changed, self._held_excess)
        self._peak = 0
        self._reservation_orders = itertools.count()
        self._changes = 0

    def set_default_limits(self, limit: int, buffers: int | None, most: int | None = None) -> bool:
        """Set missing limits of bytes and buffers; return whether this is the first call.

        Args:
            limit: Bytes of all models together.
            buffers: Buffers of the process; None for no limit.
            most: Maximum bytes of a model that is alone in memory; not used if the operator has set a limit.
        """
        with self.changed:
            is_first, self._has_defaults = not self._has_defaults, True
            if self.limit is None:
                self.limit, self.most = limit, most
            if self.buffers.limit is None:
                self.buffers.limit = buffers
            return is_first

    def statistics(self) -> AccountStatistics:
        """Return a snapshot of the usage."""
        with self.changed:
            weights, running, cached = (
                sum(getattr(share, name) for share in self._shares)
                for name in ("weights", "running", "cached")
            )
            held, buffers = self.held.nbytes, self.buffers.cached
            return AccountStatistics(weights, running, cached, held, self._peak, buffers)

    @property
    def charged(self) -> int:
        """Bytes charged by all models together."""
        with self.changed:
            return sum(share.weights + share.running + share.cached for share in self._shares)

    def others_active(self, share: Charges) -> bool:
        """Return whether a model other than this share's loads, or computes with memory of its own."""
        with self.changed:
            return any(each.loading or each.running for each in self._shares if each is not share)

    def changes_of_others(self, share: Charges) -> int:
        """Return the number of changes to the charges of all models but this share's, so far."""
        with self.changed:
            return self._changes - share.changes

    # Shares call the methods below while they hold the lock.

    def add(self, share: Charges) -> None:
        """Add a new share, which has no charges yet."""
        self._shares.append(share)

    def capacity(self) -> int | None:
        """Return the bytes that running caches may have while only one model has any; None for no limit."""
        weights = sum(share.weights for share in self._shares)
        limit = self.present_limit
        limits = [self.kv_limit, None if limit is None else limit - weights]
        return min((max(0, limit) for limit in limits if limit is not None), default=None)

    def available(self, requester: Charges, *, respect_reservations: bool = False) -> int | None:
        """Return the bytes that a share's running caches and prefix cache may have; None for no limit.

        Args:
            requester: Share that asks.
            respect_reservations: True to exclude bytes that other shares reserved earlier.
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
        if self.present_limit is not None:
            limits.append(self.present_limit - used - sum(share.weights for share in self._shares))
        return max(0, min(limits)) if limits else None

    def available_for_weights(self, requester: Charges) -> int | None:
        """Return the bytes available for a model's weights, beside others' weights and running caches."""
        if self.limit is None:
            return None
        others = [share for share in self._shares if share is not requester]
        used = sum(share.weights + share.running for share in others)
        return max(0, (self.limit if used or self.most is None else self.most) - used)

    @property
    def present_limit(self) -> int | None:
        """Current limit in bytes; higher than `limit` while a model that needs more is alone."""
        if self.limit is None or self.most is None:
            return self.limit
        return self.most if sum(share.weights for share in self._shares) > self.limit else self.limit

    def evict_excess(self, requester: Charges) -> None:
        """Request that prefix caches give way to weights that have just been charged."""
        if self.present_limit is not None:
            used = sum(share.weights + share.running + share.cached for share in self._shares)
            if used > self.present_limit:
                self.request_eviction(requester, used - self.present_limit)

    def next_reservation_order(self) -> int:
        return next(self._reservation_orders)

    def record_change(self, share: Charges) -> list[HeldPiece]:
        """Update the peak, and wake the threads that wait for a change.

        Returns:
            Held memory that gives way to the charges, to be destroyed without the lock.
        """
        self._changes += 1
        share.changes += 1
        self._peak = max(self._peak, sum(share.running + share.cached for share in self._shares))
        self.changed.notify_all()
        return self.held.drop(self._held_excess())

    def _held_excess(self) -> int:
        """Return the bytes of held memory for which the charges leave no room; <= 0 if there is room."""
        caches = sum(share.running + share.cached for share in self._shares) + self.held.nbytes
        excess = 0 if self.kv_limit is None else caches - self.kv_limit
        if self.present_limit is None:
            return excess
        weights = sum(share.weights for share in self._shares)
        return max(excess, caches + weights - self.present_limit)

    def request_eviction(self, requester: Charges, missing: int) -> bool:
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

    def cached_by_others(self, requester: Charges) -> int:
        """Return the bytes of other models' prefix caches."""
        return sum(share.cached for share in self._shares if share is not requester)

    def running_of_others(self, requester: Charges) -> int:
        """Return the bytes of other models' running caches."""
        return sum(share.running for share in self._shares if share is not requester)

    def close(self, share: Charges) -> None:
        if share in self._shares:
            self._shares.remove(share)
