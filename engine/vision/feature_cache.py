"""Features of images that were computed before, within the account of memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from greenroom.engine.vision.image_features import ImageFeatures

MAX_BYTES = 512 * 1024 * 1024
"""Of features that are kept for prompts to come: some hundred images of the largest models."""


class FeatureCache:
    """Features by the digest of their image; the least recently used go first.

    Args:
        budget: Bytes that it may hold.

    Attributes:
        reserve: Given the bytes that it wants to hold, returns how many it may.
        nbytes: Bytes that it holds.
    """

    def __init__(self, budget: int = MAX_BYTES) -> None:
        self._budget = budget
        self._kept: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        self.reserve: Callable[[int], int] = lambda nbytes: nbytes
        self.nbytes = 0

    def get(self, digest: bytes) -> ImageFeatures | None:
        """Return the features of an image, if they are here."""
        features = self._kept.get(digest)
        if features is not None:
            self._kept.move_to_end(digest)
        return features

    def put(self, digest: bytes, features: ImageFeatures) -> None:
        """Keep the features of an image, as far as there is room."""
        if digest in self._kept or features.nbytes > self._budget:
            return
        self._kept[digest] = features
        self.nbytes += features.nbytes
        self.evict_to(min(self._budget, self.reserve(self.nbytes)))

    def evict_to(self, nbytes: int) -> None:
        """Hold no more than so many bytes."""
        while self.nbytes > nbytes and self._kept:
            _, features = self._kept.popitem(last=False)
            self.nbytes -= features.nbytes
        self.reserve(self.nbytes)
