"""One account of memory for all models of a process: weights, running caches and the prefix caches.

Models live on threads of their own. Each holds a share of the account and asks before it takes: so the sum
never exceeds the limit, whichever thread is faster.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import attrs


@attrs.frozen
class AccountStatistics:
    """Bytes, now and at most.

    Args:
        running: Caches of prompts and answers under way, with copies that are being made of them.
        cached: Prefix caches.
        peak: The largest sum of `running` and `cached` there ever was.
    """

    weights: int
    running: int
    cached: int
    peak: int


class MemoryAccount:
    """Who holds how much of what there is. May be used from any thread.

    Args:
        limit: Bytes for weights, running caches and prefix caches together; None is no limit.
        kv_limit: Bytes for running caches and prefix caches alone; None is no limit of their own.
    """

    def __init__(self, limit: int | None = None, kv_limit: int | None = None) -> None:
        self.limit = limit
        self.kv_limit = kv_limit
        self._shares: list[Share] = []
        self._changed = threading.Condition()
        self._peak = 0
        self._reservation_orders = itertools.count()

    def set_default_limit(self, limit: int) -> None:
        """Set the limit, unless there is one."""
        with self._changed:
            if self.limit is None:
                self.limit = limit

    def open_share(self) -> Share:
        """A share for one more model, which holds nothing yet."""
        with self._changed:
            share = Share(self, self._changed)
            self._shares.append(share)
            return share

    def statistics(self) -> AccountStatistics:
        """A snapshot for operators and tests."""
        with self._changed:
            weights, running, cached = (
                sum(getattr(share, name) for share in self._shares)
                for name in ("weights", "running", "cached")
            )
            return AccountStatistics(weights, running, cached, self._peak)

    # What follows is for shares, which hold the lock.

    def available(self, asking: Share, *, respect_reservations: bool = False) -> int | None:
        """Bytes that a share may have for running caches and its prefix cache; None is no limit.

        Args:
            claims: Leave out what others have waited for longer.
        """
        others = [share for share in self._shares if share is not asking]
        used = sum(share.running + share.cached for share in others)
        if respect_reservations:
            used += sum(
                share.reservation
                for share in others
                if share.reservation
                and (not asking.reservation or share.reservation_order < asking.reservation_order)
            )
        rooms = []
        if self.kv_limit is not None:
            rooms.append(self.kv_limit - used)
        if self.limit is not None:
            rooms.append(self.limit - used - sum(share.weights for share in self._shares))
        return max(0, min(rooms)) if rooms else None

    def available_for_weights(self, asking: Share) -> int | None:
        """Bytes that are left for a model's weights; running caches of others come first."""
        if self.limit is None:
            return None
        others = [share for share in self._shares if share is not asking]
        return max(0, self.limit - sum(share.weights + share.running for share in others))

    def next_reservation_order(self) -> int:
        """A number larger than all before."""
        return next(self._reservation_orders)

    def record_change(self) -> None:
        """Remember the largest sum, and tell those who wait."""
        self._peak = max(self._peak, sum(share.running + share.cached for share in self._shares))
        self._changed.notify_all()

    def request_eviction(self, asking: Share, missing: int) -> bool:
        """Have the prefix caches of other models give way; whether any of them holds something."""
        holders = [share for share in self._shares if share is not asking and share.cached]
        for share in holders:
            share.eviction_request = max(share.eviction_request, missing)
            missing -= share.cached
            if share.on_eviction_request is not None:
                share.on_eviction_request()
            if missing <= 0:
                break
        return bool(holders)

    def cached_by_others(self, asking: Share) -> int:
        """Bytes of other models' prefix caches."""
        return sum(share.cached for share in self._shares if share is not asking)

    def running_of_others(self, asking: Share) -> int:
        """Bytes of other models' running caches."""
        return sum(share.running for share in self._shares if share is not asking)

    def close(self, share: Share) -> None:
        """Forget a share."""
        if share in self._shares:
            self._shares.remove(share)


class Share:
    """What one model holds. Written by its own thread only, and read by all.

    Attributes:
        weights: Bytes of the model itself.
        running: Bytes of caches of prompts and answers, and of copies under way.
        cached: Bytes of the prefix cache.
        asked: Bytes that another model wants the prefix cache to give up.
        on_asked: Called, on any thread, when that happens; must not block.
    """

    def __init__(self, account: MemoryAccount, changed: threading.Condition) -> None:
        self.weights = self.running = self.cached = 0
        self.reservation = self.reservation_order = self.eviction_request = 0
        self.on_eviction_request: Callable[[], None] | None = None
        self._account = account
        self._changed = changed

    def available(self) -> int | None:
        """Bytes that running caches and the prefix cache of this model may have together now."""
        with self._changed:
            return self._account.available(self)

    def capacity(self) -> int | None:
        """Bytes that they might have if no other model had any."""
        with self._changed:
            account = self._account
            weights = sum(share.weights for share in account._shares)
            limits = [account.kv_limit, None if account.limit is None else account.limit - weights]
            return min((max(0, limit) for limit in limits if limit is not None), default=None)

    def charge_weights(self, nbytes: int) -> int | None:
        """Charge the weights; returns None, or the bytes that there are if they do not fit."""
        with self._changed:
            room = self._account.available_for_weights(self)
            if room is not None and nbytes > room:
                return room
            self.weights = nbytes
            self._account.record_change()
            return None

    def charge_running(self, running: int, *, new: bool = False) -> bool:
        """Set the bytes of running caches, if they fit; less than before always does.

        Args:
            new: For a prompt that comes in, which must not overtake those of other models.
        """
        with self._changed:
            if running > self.running:
                room = self._account.available(self, respect_reservations=new)
                if room is not None and running + self.cached > room:
                    return False
            self.running = running
            self._account.record_change()
            return True

    def charge_cached(self, cached: int) -> int:
        """Set the bytes of the prefix cache to as many of these as fit; returns how many."""
        with self._changed:
            room = self._account.available(self, respect_reservations=True)
            if room is not None:
                cached = min(cached, max(0, room - self.running))
            self.cached = cached
            self._account.record_change()
            return cached

    def available_for_running(self) -> int | None:
        """Bytes that running caches of this model may have if all prefix caches give way."""
        with self._changed:
            room = self._account.available(self, respect_reservations=True)
            return None if room is None else room + self._account.cached_by_others(self)

    def request_eviction(self, missing: int, seconds: float) -> bool:
        """Have other models' prefix caches give way, and wait for that.

        Returns:
            False, at once, if they hold nothing.
        """
        with self._changed:
            asked = self._account.request_eviction(self, missing)
            if asked:
                self._changed.wait(seconds)
            return asked

    def others_running(self) -> bool:
        """Whether other models have running caches."""
        with self._changed:
            return self._account.running_of_others(self) > 0

    def wait_for_change(self, seconds: float) -> None:
        """Wait for a change of the account."""
        with self._changed:
            self._changed.wait(seconds)

    def reserve(self, wanted: int) -> None:
        """Claim bytes for a prompt that waits for other models; they admit nothing that needs these."""
        with self._changed:
            if not self.reservation:
                self.reservation_order = self._account.next_reservation_order()
            self.reservation = wanted

    def cancel_reservation(self) -> None:
        """The prompt waits no more."""
        if self.reservation:
            with self._changed:
                self.reservation = 0
                self._changed.notify_all()

    def close(self) -> None:
        """Give back everything."""
        with self._changed:
            self.weights = self.running = self.cached = self.reservation = 0
            self._account.close(self)
            self._changed.notify_all()
