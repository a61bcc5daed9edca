"""Reuse of prefixes that are cached, or that another prompt is computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.text.prefix_cache.memory_tier import common_length, pack
from greenroom.engine.text.prefix_cache.prefix_cache import MIN_TOKENS_RUNNING, PrefixCacheClient
from greenroom.engine.text.scheduler.prefill_policy import PrefillRequest
from greenroom.engine.text.scheduler.step_costs import StepCosts
from greenroom.engine.text.sequence import Awaited, Sequence, prefill_keys
from greenroom.schemas.logs import get_logger

FIRST_SLICE_BYTES = 16e6  # Size in bytes of the first copied slice of a prefix
_GROWTH = 2  # Largest growth factor from one slice's bytes to the next

_MAX_SLICE_MS = 100.0  # Most milliseconds of a slice beside running streams, however slow their steps are


log = get_logger(__name__)


class PrefixReuse:
    """Creates the KV caches of requests and fills them with the longest cached prefix.

    The bytes copied in each step are bounded, as prefill chunks are.

    Args:
        clock: Clock in seconds, with any origin.
        room: Function from a prompt's length to the token capacity of its cache.

    Attributes:
        copied: Bytes copied since the last `allow`.
    """

    def __init__(
        self,
        model: Any,
        prefix_cache: PrefixCacheClient,
        costs: StepCosts,
        clock: Callable[[], float],
        room: Callable[[int], int],
    ) -> None:
        self._model = model
        self._prefix_cache = prefix_cache
        self._costs = costs
        self._allowed = 0.0
        self._clock = clock
        self._room = room
        self.copied = self._charged = self._slice = 0
        self._reading: PrefillRequest | None = None
        self._sharing = PrefixSharing(prefix_cache.is_cacheable)

    def add(self, request: PrefillRequest, requests: Iterable[PrefillRequest]) -> None:
        """Compare a new request with those in prefill and add checkpoints where they diverge from it."""
        shared = self._sharing.add(request.sequence)
        for other in requests:
            if other.sequence in shared:
                self._add_checkpoints(other, [shared[other.sequence]])

    def match(self, requests: Iterable[PrefillRequest]) -> None:
        """Match requests that have not started against the prefix cache, if it has changed."""
        version = self._prefix_cache.version
        for request in requests:
            if request.cache is None and request.cache_version != version:
                found = self._prefix_cache.match(request.sequence)
                request.computed, request.stored = found.usable, found.stored
                request.cache_version = version

    def should_wait(self, request: PrefillRequest) -> bool:
        awaited = self._awaited(request)
        request.sequence.metrics.wait_for(awaited)
        return awaited is not None

    def _awaited(self, request: PrefillRequest) -> Awaited | None:
        if request.restoration is not None:
            return "disk" if request.restoration.is_waiting() else None
        if request.cache is not None:
            return None
        if request.stored and self._reading is not None:  # one reads it for all
            return "disk"
        return "prefix" if self._sharing.should_wait(request.sequence, request.computed) else None

    def wait_for_disk(self, seconds: float) -> None:
        """Wait for a pending read from disk, up to `seconds`."""
        if self._reading is not None and self._reading.restoration is not None:
            self._reading.restoration.is_waiting(seconds)

    def allow(self, milliseconds: float, *, idle: bool = False) -> None:
        """Set the time that `start` may spend on copies until the next call; one array is always copied.

        Slices grow gradually, as chunks do: a small copy may reuse memory, but a large one needs an
        allocation.

        Args:
            idle: Whether nothing decodes, so that no stream waits for the copies.
        """
        self._slice = self.copied or self._slice
        fitting = self._costs.bytes_within(milliseconds if idle else min(milliseconds, _MAX_SLICE_MS))
        self._allowed = min(fitting, max(FIRST_SLICE_BYTES, _GROWTH * self._slice))
        self.copied = self._charged = 0

    def pop_cost(self) -> float:
        """Return the predicted milliseconds of the copies made since the last call."""
        added, self._charged = self.copied - self._charged, self.copied
        return added * self._costs.copy.coefficients[0]

    def start(
        self, request: PrefillRequest, requests: Iterable[PrefillRequest], *, timed: bool = False
    ) -> bool:
        """Create a request's cache if needed and continue to restore its prefix; return whether it is done.
        `timed`: whether to wait for the copies and time them, since nothing else is computed.
        """
        if request.cache is None:
            request.sequence.metrics.start()
            self._make_cache(request)
            if request.restoration is None:
                self._on_filled(request, requests)
        restoration = request.restoration
        if restoration is None:
            return True
        began = self._clock()
        try:
            copied = restoration.advance(self._allowed - self.copied, force=not self.copied)
        except Exception as error:
            raise_unless_own(error)
            self._compute_instead(request)
            return True
        self.copied += copied
        if timed and copied:
            caches.evaluate(request.cache or [])  # else the next work would wait for the slice in flight
            self._costs.observe_copy(copied, (self._clock() - began) * 1e3)
        if not restoration.is_done:
            return False
        request.computed, request.restoration = restoration.restored.tokens, None
        request.from_disk = restoration.restored.from_disk
        self._reading = None if self._reading is request else self._reading
        self._on_filled(request, requests)
        return True

    def start_whole(
        self, request: PrefillRequest, requests: Iterable[PrefillRequest], max_length: int
    ) -> bool:
        """Start a request; return whether the rest of its prompt can share a chunk now. `max_length`: prompt
        length in tokens up to which a cached prefix does not pad the others too much.
        """
        ready = self.start(request, requests)
        return (
            ready
            and request.until_checkpoint == request.remaining
            and (not request.computed or len(request.sequence.prefill_tokens) <= max_length)
        )

    def remove(self, request: PrefillRequest) -> None:
        self._sharing.remove(request.sequence)
        self._reading = None if self._reading is request else self._reading
        if request.restoration is not None:
            request.restoration.close()
            request.restoration = None

    def _make_cache(self, request: PrefillRequest) -> None:
        request.cache, request.restoration = self._prefix_cache.restore(
            request.sequence, self._room(len(request.sequence.prefill_tokens))
        )
        if request.stored:
            self._reading = request

    def _compute_instead(self, request: PrefillRequest) -> None:
        """Give a request an empty cache after its restoration failed, and stop sharing prefixes with it."""
        log.exception("prefix not restored", request_id=request.sequence.request_id)
        self.remove(request)
        request.sequence.key = None
        request.cache, request.computed = caches.new_cache(self._model), 0

    def _on_filled(self, request: PrefillRequest, requests: Iterable[PrefillRequest]) -> None:
        sequence = request.sequence
        shared = self._prefix_cache.match(sequence).shared
        metrics = sequence.metrics
        waiting = (other.sequence for other in requests if other.cache is None)
        self._add_checkpoints(request, {shared, *self._sharing.start(sequence, waiting)})
        if sequence.preempted:
            metrics.restart(len(sequence.prefill_tokens) - request.computed)
        else:
            metrics.cached_tokens, metrics.disk_tokens = request.computed, request.from_disk
            cacheable = self._prefix_cache.is_cacheable(sequence)
            metrics.known_tokens = max(shared, request.computed) if cacheable else None

    def _add_checkpoints(self, request: PrefillRequest, shared: Iterable[int]) -> None:
        """Add checkpoints where a prompt diverges from others, if its cache cannot be trimmed later."""
        added = self._prefix_cache.checkpoints(request.sequence, request.computed, shared)
        request.checkpoints = tuple(sorted({*request.checkpoints, *added}))


class PrefixSharing:
    """Finds prompts in prefill whose prefix others should wait for. `is_cacheable`: predicate: whether a
    sequence's computed prompt enters the prefix cache.
    """

    def __init__(self, is_cacheable: Callable[[Sequence], bool]) -> None:
        self._is_cacheable = is_cacheable
        self._packed: dict[Sequence, bytes] = {}
        self._shared: dict[Sequence, dict[Sequence, int]] = {}

    def start(self, sequence: Sequence, waiting: Iterable[Sequence]) -> set[int]:
        """Mark a prompt as in prefill; return the lengths of the prefixes shared with waiting prompts."""
        if not self._is_cacheable(sequence):
            return set()
        self._shared[sequence] = {}
        return {self._compare(sequence, other) for other in waiting if other is not sequence} - {0}

    def add(self, sequence: Sequence) -> dict[Sequence, int]:
        """Compare a waiting prompt with those in prefill; return the shared tokens by sequence."""
        return {leader: count for leader in self._shared if (count := self._compare(leader, sequence))}

    def remove(self, sequence: Sequence) -> None:
        """Remove a prompt that is computed or cancelled."""
        self._shared.pop(sequence, None)
        self._packed.pop(sequence, None)
        for shared in self._shared.values():
            shared.pop(sequence, None)

    def should_wait(self, sequence: Sequence, cached: int) -> bool:
        """Return whether a prompt with `cached` tokens gains by waiting for one in prefill."""
        return any(
            sequence in shared and shared[sequence] - cached >= MIN_TOKENS_RUNNING
            for shared in self._shared.values()
        )

    def _compare(self, leader: Sequence, sequence: Sequence) -> int:
        if sequence.key != leader.key or not self._is_cacheable(sequence):
            return 0
        # The last token is never shared: it is the input of each sequence's own first decode step.
        count = common_length(self._bytes(leader), self._bytes(sequence)) // 4
        if count >= MIN_TOKENS_RUNNING:
            self._shared[leader][sequence] = count
            return count
        return 0

    def _bytes(self, sequence: Sequence) -> bytes:
        if sequence not in self._packed:
            self._packed[sequence] = pack(prefill_keys(sequence)[:-1])
        return self._packed[sequence]
