"""A cache of processed images: an image that comes again costs only a hash."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from greenroom.engine.vision.prompts.image_processor import ProcessedImage

MAX_BYTES = 256 * 1024 * 1024
"""Default size limit in bytes: some twenty photographs of a megapixel."""


class ProcessedImages:
    """An LRU cache of one model's processed images, used by the thread that prepares its prompts.

    Args:
        max_bytes: Size limit of the arrays in bytes; an image above it is not cached.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[bytes, ProcessedImage] = OrderedDict()
        self.nbytes = 0

    def find(self, digests: Iterable[bytes]) -> list[ProcessedImage]:
        """Return the cached images for `digests`, up to the first that is missing."""
        found = []
        for digest in digests:
            if digest not in self._kept:
                break
            found.append(self._kept[digest])
            self._kept.move_to_end(digest)
        return found

    def get(self, digest: bytes, process: Callable[[], ProcessedImage]) -> ProcessedImage:
        """Return the image from the cache, or process and insert it."""
        kept = self._kept.get(digest)
        if kept is not None:
            self._kept.move_to_end(digest)
            return kept
        made = process()
        if made.nbytes <= self._max_bytes:
            self._kept[digest] = made
            self.nbytes += made.nbytes
            while self.nbytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self.nbytes -= oldest.nbytes
        return made
