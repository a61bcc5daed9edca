"""What one model's caches take, charged to the account before they are allocated."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence

from greenroom.engine.kv_cache.caches import Cache, preallocate
from greenroom.engine.kv_cache.growth import GROWN_AHEAD, LARGE_BYTES, allocated_tokens
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.memory.account import MemoryAccount, Share
from greenroom.engine.memory.cached_parts import CachedParts
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.sequences.prompt_features import FeatureSource
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.statistics import MemoryStatistics

_EVICTION_TIMEOUT = 0.2
"""Seconds that another model's prefix cache gets to evict, before sequences of this one are preempted."""
_EVICTION_POLL = 0.02


class KvMemory:
    """One model's caches: running batches, reservations for prompts, temporary copies, and the prefix cache.

    Args:
        share: This model's share of the account; None is unlimited.
        size_model: What its caches take.
        prefix_cache: Is evicted for what runs.
        features: What is kept of images and their like, which goes before the prefixes.

    Attributes:
        headroom: Bytes of the largest layer, which must stay free: so much a copy takes meanwhile.
    """

    def __init__(
        self,
        share: Share | None,
        size_model: CacheSizeModel,
        prefix_cache: PrefixCache | None,
        features: FeatureSource | None = None,
    ) -> None:
        self.share = share or MemoryAccount().open_share()
        self.size_model = size_model
        self.headroom = 0
        self._tensor_specs = [
            [(spec.heads, spec.width, spec.dtype) for spec in layer.kv_tensors]
            if layer.window is None
            else []
            for layer in size_model.layers
        ]
        self._reservations: dict[int, int] = {}
        self._reserved_bytes = 0
        self._batch_bytes = 0
        self._temporary_bytes = 0
        self._idle_bytes = 0
        self._on_reclaimed: Callable[[], None] = lambda: None
        self._cached = CachedParts(self.share, prefix_cache, features)

    def statistics(self) -> MemoryStatistics:
        """Return what this model holds of the account."""
        share = self.share
        buffers = share.buffers
        return MemoryStatistics(
            share.weights, share.running, share.cached, buffers.cached, buffers.cached_limit
        )

    def record_usage(self, batches: int, headroom: int, caches: int) -> None:
        """Charge what the running batches take, and release what was reserved for copies.

        Args:
            batches: Bytes of their caches.
            headroom: Bytes of the largest layer.
            caches: How many they are.
        """
        under_way = caches + len(self._reservations)
        self.share.buffers.charge_running(under_way * self.size_model.buffers)
        self._batch_bytes, self.headroom, self._temporary_bytes = batches, headroom, 0
        if self.share.running != self._running_bytes + self._idle_bytes:
            self._charge(self._running_bytes)

    def reserve_temporary(self, nbytes: int) -> bool:
        """Reserve bytes up to the next `record_usage`; return whether they are there."""
        if not self._charge(self._running_bytes + nbytes):
            return False
        self._temporary_bytes += nbytes
        return True

    def reserve_temporary_evicting(self, nbytes: int) -> bool:
        """Reserve bytes as `reserve_temporary` does, evicting prefixes, other models' last."""
        return self._evicting(nbytes, lambda: self.reserve_temporary(nbytes))

    @property
    def temporary_bytes(self) -> int:
        """Bytes that are reserved for copies until the next `record_usage`."""
        return self._temporary_bytes

    def reserve(self, sequence: Sequence, tokens: int, chunk_tokens: int) -> bool:
        """Reserve the memory of a prompt's cache and features; return whether it is there or could be freed.

        Args:
            tokens: Of the prompt and the first decode step.
            chunk_tokens: Of the largest chunk in which it is computed.
        """
        nbytes = self.size_model.nbytes(1, self.prompt_room(tokens), chunk_tokens)
        nbytes += sequence.features.nbytes if sequence.features is not None else 0
        running, headroom = self._running_bytes, self.headroom_for(nbytes)

        def charge() -> bool:
            with_headroom = running + nbytes + headroom
            return self._charge(with_headroom, new=True) and self._charge(running + nbytes)

        if not self._evicting(nbytes + headroom, charge):
            return False
        self._reservations[sequence.serial] = nbytes
        self._reserved_bytes += nbytes
        return True

    def grow(self, sequences: GenericSequence[Sequence], nbytes: int) -> bool:
        """Grow the reservations of these sequences to so many bytes together; return whether they fit."""
        missing = nbytes - sum(self._reservations.get(sequence.serial, 0) for sequence in sequences)
        if missing > 0:
            if not self._charge(self._running_bytes + missing):
                return False
            first = sequences[0].serial
            self._reservations[first] = self._reservations.get(first, 0) + missing
            self._reserved_bytes += missing
        return True

    def preallocate(self, cache: Cache, tokens: int) -> None:
        """Allocate a prompt's cache as a whole: growing step by step copies it at each of them."""
        preallocate(cache, self._tensor_specs, allocated_tokens(self.prompt_room(tokens)))

    def prompt_room(self, tokens: int) -> int:
        """Return for how many tokens the cache of a prompt of that length has room.

        A large one need not grow before there was time to do so a part at a time.
        """
        is_large = self.size_model.nbytes(1, tokens) >= LARGE_BYTES
        return tokens + GROWN_AHEAD if is_large else tokens

    def release(self, sequence: Sequence) -> None:
        """Release what is reserved for a sequence; counts from the next `record_usage`."""
        self._reserved_bytes -= self._reservations.pop(sequence.serial, 0)

    def headroom_for(self, nbytes: int) -> int:
        """Return the bytes that copies take meanwhile, once a cache of that size is among the others."""
        return max(self.headroom, int(nbytes * self.size_model.largest_layer_share))

    def reserve_idle(self, nbytes: int, on_reclaimed: Callable[[], None]) -> bool:
        """Reserve bytes for what can do without; return whether as many again stay free.

        Args:
            on_reclaimed: Called when anything else needs them; must free them.
        """
        running = self._running_bytes
        if not self.share.charge_running(running + 2 * nbytes, new=True):
            self.reclaim()
            return False
        self.share.charge_running(running + nbytes)
        self._idle_bytes, self._on_reclaimed = nbytes, on_reclaimed
        return True

    def reclaim(self) -> None:
        """Have what was reserved for idle work freed."""
        if self._idle_bytes:
            self._idle_bytes = 0
            self._on_reclaimed()
            self.share.charge_running(self._running_bytes)

    def evict_for_others(self) -> None:
        """Evict what is cached for another model that has requested its memory."""
        self._cached.evict_for_others()

    def close(self) -> None:
        """Release everything."""
        self.share.close()

    @property
    def _running_bytes(self) -> int:
        return self._batch_bytes + self._reserved_bytes + self._temporary_bytes

    def _charge(self, running: int, *, new: bool = False) -> bool:
        """Charge running caches, if need be with what idle work holds; return whether they fit."""
        if self.share.charge_running(running + self._idle_bytes, new=new):
            return True
        if not self._idle_bytes:
            return False
        self.reclaim()
        return self.share.charge_running(running, new=new)

    def _evicting(self, nbytes: int, charge: Callable[[], bool]) -> bool:
        """Return whether `charge` succeeds, at last after evicting prefixes of so many bytes."""
        cached = self._cached
        if charge() or (cached.evict_features(nbytes) and charge()):
            return True
        if cached.prefix_bytes:
            available = self.share.available() or 0
            cached.evict_prefixes_to(min(cached.prefix_bytes, available - self._running_bytes - nbytes))
            if charge():
                return True
        waited = 0.0
        while waited < _EVICTION_TIMEOUT and self.share.request_eviction(nbytes, _EVICTION_POLL):
            waited += _EVICTION_POLL
            if charge():
                return True
        return False
