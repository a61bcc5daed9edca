"""A cache of image features, charged to the memory account."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from greenroom.engine.vision.image_features import ImageFeatures

MAX_BYTES = 512 * 1024 * 1024
"""Default size limit of the cache in bytes: some hundred images of the largest models."""


class FeatureCache:
    """An LRU cache of image features, keyed by the image's digest.

    Args:
        budget: Size limit in bytes.

    Attributes:
        reserve: Callback that takes the bytes wanted and returns the bytes granted.
        nbytes: Size of the cached features in bytes.
    """

    def __init__(self, budget: int = MAX_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self.reserve: Callable[[int], int] = lambda nbytes: nbytes
        self.nbytes = 0

    def get(self, digest: bytes) -> ImageFeatures | None:
        """Return an image's cached features, or None."""
        features = self._kept.get(digest)
        if features is not None:
            self._kept.move_to_end(digest)
        return features

    def put(self, digest: bytes, features: ImageFeatures) -> None:
        """Insert an image's features, evicting others as the budget requires."""
        if digest in self._kept or features.nbytes > self._budget:
            return
        self._kept[digest] = features
        self.nbytes += features.nbytes
        self.evict_to(min(self._budget, self.reserve(self.nbytes)))

    def evict_to(self, nbytes: int) -> None:
        """Evict the least recently used entries until at most `nbytes` are held."""
        while self.nbytes > nbytes and self._kept:
            _, features = self._kept.popitem(last=False)
            self.nbytes -= features.nbytes
        self.reserve(self.nbytes)
