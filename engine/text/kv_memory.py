"""Memory of one model's KV caches, charged to the account before allocation."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence

from greenroom.engine.kv_cache.caches import GROWN_AHEAD, LARGE_BYTES, Cache, allocated_tokens, preallocate
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.resources.device_errors import page_bytes
from greenroom.engine.resources.memory_account import MemoryAccount, Share
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.prompt_features import FeatureSource
from greenroom.engine.text.sequence import Sequence

_EVICTION_TIMEOUT = 0.2
"""Time for another model's prefix cache to evict before sequences of this model are preempted, in seconds."""
_EVICTION_POLL = 0.02


class KvMemory:
    """Memory of one model's caches: running batches, prompt reservations, temporary copies, prefix cache.

    Args:
        share: This model's share of the account; None for no limit.
        features: Cache of image features and similar, evicted before the prefixes.

    Attributes:
        headroom: Bytes of the largest layer, which must stay free for its copy.
        temporary_bytes: Bytes reserved for copies until the next `record_usage`.
    """

    def __init__(
        self,
        share: Share | None,
        size_model: CacheSizeModel,
        prefix_cache: PrefixCache | None,
        features: FeatureSource | None = None,
    ) -> None:
        self.share = share or Share(MemoryAccount())
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
        self.temporary_bytes = 0
        self._idle_bytes = 0
        self._on_reclaimed: Callable[[], None] = lambda: None
        self._cached = CachedParts(self.share, prefix_cache, features)

    def record_usage(self, batches: int, headroom: int, caches: int) -> None:
        """Charge the memory of the running batches, and release what was reserved for copies. `batches`:
        bytes of the batches' caches; `headroom`: bytes of the largest layer.
        """
        under_way = caches + len(self._reservations)
        self.share.buffers.charge_running(under_way * self.size_model.buffers)
        self._batch_bytes, self.headroom, self.temporary_bytes = batches, headroom, 0
        if self.share.running != self._running_bytes + self._idle_bytes:
            self._charge(self._running_bytes)

    def reserve_temporary(self, nbytes: int) -> bool:
        """Reserve bytes until the next `record_usage`; return whether they are available."""
        if not self._charge(self._running_bytes + nbytes):
            return False
        self.temporary_bytes += nbytes
        return True

    def reserve_temporary_evicting(self, nbytes: int) -> bool:
        """Reserve bytes like `reserve_temporary`, but evict prefixes if needed, other models' last."""
        return self._evicting(nbytes, lambda: self.reserve_temporary(nbytes))

    def reserve(self, sequence: Sequence, tokens: int, chunk_tokens: int) -> bool:
        """Reserve memory for a prompt's cache and features, with evictions if needed; return whether it fits.

        Args:
            tokens: Number of tokens of the prompt and the first decode step.
            chunk_tokens: Number of tokens in the largest prefill chunk.
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
        """Grow the reservations of these sequences to `nbytes` bytes together; return whether they fit."""
        missing = nbytes - sum(self._reservations.get(sequence.serial, 0) for sequence in sequences)
        if missing > 0:
            if not self._charge(self._running_bytes + missing):
                return False
            first = sequences[0].serial
            self._reservations[first] = self._reservations.get(first, 0) + missing
            self._reserved_bytes += missing
        return True

    def charge_weights(self, nbytes: int) -> bool:
        """Charge more weights, evicting prefixes if needed, or fewer; return whether they fit."""
        share = self.share
        if nbytes > 0:
            running = self._running_bytes
            if not self._evicting(nbytes, lambda: self._charge(running + nbytes)):
                return False
            self._charge(running)
        return share.charge_weights(share.weights + nbytes) is None

    def preallocate(self, cache: Cache, tokens: int) -> None:
        """Allocate the whole cache of a prompt, since every growth step would copy it."""
        preallocate(cache, self._tensor_specs, allocated_tokens(self.prompt_room(tokens)))

    def prompt_room(self, tokens: int) -> int:
        """Return the capacity, in tokens, of the cache for a prompt of this length.

        A large cache has some in reserve, so that it can grow in parts before it is full.
        """
        is_large = self.size_model.nbytes(1, tokens) >= LARGE_BYTES
        return tokens + GROWN_AHEAD if is_large else tokens

    def release(self, sequence: Sequence) -> None:
        """Release a sequence's reservation, effective at the next `record_usage`."""
        self._reserved_bytes -= self._reservations.pop(sequence.serial, 0)

    def headroom_for(self, nbytes: int) -> int:
        """Return the bytes needed for copies once a cache of this size is among the others."""
        return max(self.headroom, int(nbytes * self.size_model.largest_layer_share))

    def reserve_idle(self, nbytes: int, on_reclaimed: Callable[[], None]) -> bool:
        """Reserve bytes for optional work; return whether as many again stay free. `nbytes`: bytes to
        reserve; `on_reclaimed`: callback for when other work needs the bytes; must free them.
        """
        running = self._running_bytes
        if not self.share.charge_running(running + 2 * nbytes, new=True):
            self.reclaim()
            return False
        self.share.charge_running(running + nbytes)
        self._idle_bytes, self._on_reclaimed = nbytes, on_reclaimed
        return True

    def reclaim(self) -> None:
        """Reclaim the bytes reserved for optional work."""
        if self._idle_bytes:
            self._idle_bytes = 0
            self._on_reclaimed()
            self.share.charge_running(self._running_bytes)

    def evict_for_others(self) -> None:
        """Evict cached data for another model that has requested memory."""
        self._cached.evict_for_others()

    def evict_all(self) -> None:
        self._cached.evict_features(self.share.cached)
        self._cached.evict_prefixes_to(0)

    @property
    def _running_bytes(self) -> int:
        return self._batch_bytes + self._reserved_bytes + self.temporary_bytes

    def _charge(self, running: int, *, new: bool = False) -> bool:
        """Charge running caches, reclaiming optional work's bytes if needed; return whether they fit."""
        if self.share.charge_running(running + self._idle_bytes, new=new):
            return True
        if not self._idle_bytes:
            return False
        self.reclaim()
        return self.share.charge_running(running, new=new)

    def _evicting(self, nbytes: int, charge: Callable[[], bool]) -> bool:
        """Return whether `charge` succeeds, if needed after evicting `nbytes` bytes of cached data."""
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


class CachedParts:
    """A model's prefix cache and feature cache (images and similar); features are evicted first."""

    def __init__(
        self, share: Share, prefix_cache: PrefixCache | None, features: FeatureSource | None
    ) -> None:
        self._share = share
        self._held: list[int] = []
        self._prefixes = None if prefix_cache is None else prefix_cache.memory
        self._features = features
        if self._prefixes is not None:
            self._prefixes.reserve = self._new_part()
            self._prefixes.reserve_buffers = share.buffers.charge_cached
            self._prefixes.page = page_bytes()
        if features is not None:
            features.charge_with(self._new_part())

    @property
    def prefix_bytes(self) -> int:
        return 0 if self._prefixes is None else self._prefixes.nbytes

    def evict_features(self, nbytes: int) -> int:
        """Evict up to `nbytes` bytes of features; return the bytes freed."""
        if self._features is None:
            return 0
        before = self._features.nbytes
        self._features.evict_to(max(0, before - nbytes))
        return before - self._features.nbytes

    def evict_prefixes_to(self, nbytes: int) -> None:
        if self._prefixes is not None:
            self._prefixes.evict_to(max(0, nbytes))

    def evict_for_others(self) -> None:
        """Evict for another model that has requested bytes or buffers."""
        requested, self._share.eviction_request = self._share.eviction_request, 0
        requested -= self.evict_features(requested)
        if requested > 0:
            self.evict_prefixes_to(self.prefix_bytes - requested)
        buffers = self._share.buffers
        if self._prefixes is not None and buffers.requested:
            left = max(0, self._prefixes.buffers - buffers.pop_requested())
            self._prefixes.evict_to(self._prefixes.nbytes, left)

    def _new_part(self) -> Callable[[int], int]:
        """Return a function that charges one more cache: it takes the bytes wanted, returns those granted."""
        self._held.append(0)
        index = len(self._held) - 1

        def charge(nbytes: int) -> int:
            others = sum(self._held) - self._held[index]
            self._held[index] = max(0, self._share.charge_cached(others + nbytes) - others)
            return self._held[index]

        return charge
