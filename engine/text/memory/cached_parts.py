"""A model's caches for later requests, charged to its share together and evicted on demand."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.engine.device.device_information import page_bytes
from greenroom.engine.memory.share import Share
from greenroom.engine.text.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.text.sequences.prompt_features import FeatureSource


class CachedParts:
    """A model's prefix cache and feature cache (images and similar); features are evicted first.

    Args:
        share: Share that is charged with the sum of both.
        prefix_cache: Prefix cache; None if the model has none.
        features: Cache of image features and similar; None if the model has none.
    """

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
        """Size of the prefix cache in bytes."""
        return 0 if self._prefixes is None else self._prefixes.nbytes

    def evict_features(self, nbytes: int) -> int:
        """Evict up to `nbytes` bytes of features; return the bytes freed."""
        if self._features is None:
            return 0
        before = self._features.nbytes
        self._features.evict_to(max(0, before - nbytes))
        return before - self._features.nbytes

    def evict_prefixes_to(self, nbytes: int) -> None:
        """Evict prefixes down to `nbytes` bytes."""
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
