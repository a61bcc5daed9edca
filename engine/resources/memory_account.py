"""Memory account of all models in a process: weights, running caches and prefix caches.

Models run on their own threads. Each has a `Share` of the account and charges its memory before it allocates:
so the sum never exceeds the limit, whichever thread is faster.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable

import attrs

from greenroom.engine.resources.buffer_budget import BufferBudget
from greenroom.engine.resources.held_memory import HeldMemory, HeldPiece
from greenroom.schemas.events.statistics import MemoryStatistics


@attrs.frozen
class AccountStatistics:
    """Memory usage in bytes, current and peak.

    Args:
        weights: Bytes of all models' weights.
        running: Bytes of the caches of running prompts and answers, including copies in progress.
        cached: Bytes of the prefix caches.
        held: Bytes of host memory that unloaded models have left for their next loads.
        peak: Largest sum of `running` and `cached` so far.
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
        self._hosts: dict[str, MemoryAccount] = defaultdict(MemoryAccount)
        self.changed = threading.Condition()
        """The lock of all charges, notified of each change."""
        self.held = HeldMemory(self.changed, self._held_excess)
        self._peak = 0
        self._reservation_orders = itertools.count()
        self._changes = 0

    def host(self, name: str) -> MemoryAccount:
        """Return the account of another machine, for the ranks there."""
        with self.changed:
            return self._hosts[name]

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
        with self.changed:
            weights, running, cached = (
                sum(getattr(share, name) for share in self._shares)
                for name in ("weights", "running", "cached")
            )
            held, buffers = self.held.nbytes, self.buffers.cached
            return AccountStatistics(weights, running, cached, held, self._peak, buffers)

    @property
    def charged(self) -> int:
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
        `respect_reservations`: True to exclude bytes that other shares reserved earlier.
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
        """Return the bytes of held memory to drop, so that the rest fits beside the charges; <= 0: none."""
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


class Charges:
    """Memory charged to one model, as the account adds it up.

    Attributes:
        weights: Bytes of the model's weights.
        running: Bytes of the caches of prompts and answers, including copies in progress.
        cached: Bytes of the prefix cache.
        reservation: Bytes that other models leave free for a waiting prompt; 0 for none.
        reservation_order: Order of the reservation among all models; smaller numbers come first.
        eviction_request: Bytes that another model requests from the prefix cache.
        on_eviction_request: Callback for such a request, called on any thread; must not block.
        loading: True while the weights are loaded.
        changes: Number of changes to the charges so far.
    """

    def __init__(self) -> None:
        self.weights = self.running = self.cached = self.changes = 0
        self.loading = False
        self.reservation = self.reservation_order = self.eviction_request = 0
        self.on_eviction_request: Callable[[], None] | None = None


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
        if self.reservation:
            with self._changed:
                self.reservation = 0
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self.weights = self.running = self.cached = self.reservation = 0
            self._account.close(self)
            self._account.record_change(self)
        self.buffers.close()

    def _on_buffers_requested(self) -> None:
        if self.on_eviction_request is not None:
            self.on_eviction_request()


def share_statistics(share: Share) -> MemoryStatistics:
    """Return the bytes charged to a model, by kind."""
    buffers = share.buffers
    arrays = buffers.cached, buffers.cached_limit
    return MemoryStatistics(share.weights, share.running, share.cached, *arrays, share.capacity())
