"""How much a request may show a model, and how large an image has to be to show all that its model sees."""

from __future__ import annotations

import math

import attrs

MEGABYTE = 1_000_000

DETAIL_LOW = 512
"""Pixels of the longer side of an image that is to be looked at roughly.

Source: OpenAI's guide "Images and vision", detail levels.
"""


@attrs.frozen
class ImageLimits:
    """What images may be and take, checked before anything of that size is in memory.

    Args:
        bytes_each: Of one image's file.
        bytes_together: Of the files of all images and documents of a request.
        pixels: Of one image: the sensors of most phones have fewer.
        images: That one request gives to the model.
        pages: Of all documents of a request together.
        single: One image, or page, is all that the model takes, whatever the settings.
    """

    bytes_each: int = 20 * MEGABYTE
    bytes_together: int = 50 * MEGABYTE
    pixels: int = 64 * 1024 * 1024
    images: int = 5
    pages: int = 20
    single: bool = False


@attrs.frozen
class SightLimit:
    """The largest image of which a model's processor keeps every pixel; what is larger it scales down.

    Args:
        width: Pixels; None for no limit.
        height: Pixels.
        area: Pixels, width times height.
    """

    width: int | None = None
    height: int | None = None
    area: int | None = None

    def reduction(self, width: int, height: int) -> int:
        """Return by which whole number both sides may be divided before the processor loses anything."""
        factors = [
            *([width / self.width] if self.width else []),
            *([height / self.height] if self.height else []),
            *([math.sqrt(width * height / self.area)] if self.area else []),
        ]
        # Sides that are limited one by one are scaled to fit each; a smaller factor loses nothing in either.
        return max(1, int(min(factors, default=1)))


ANY_SIZE = SightLimit()
"""Nothing is scaled down."""
