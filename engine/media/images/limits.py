"""Limits of images per request, and the image size that a model can use."""

from __future__ import annotations

import math

import attrs

MEGABYTE = 1_000_000

DETAIL_LOW = 512
"""Longer side in pixels of an image with `detail: low`.

Source: OpenAI's guide "Images and vision", detail levels.
"""


@attrs.frozen
class ImageLimits:
    """Limits of a request's images, checked before memory is allocated.

    Args:
        bytes_each: Size of one file in bytes.
        bytes_together: Size of all images, documents and recordings of a request in bytes.
        pixels: Pixels of one image; most phones' sensors have fewer.
        images: Number of images per request.
        pages: Number of pages per request, over all its documents.
        single: True if the model takes only one image or page, whatever the settings.
    """

    bytes_each: int = 20 * MEGABYTE
    bytes_together: int = 50 * MEGABYTE
    pixels: int = 64 * 1024 * 1024
    images: int = 5
    pages: int = 20
    single: bool = False


@attrs.frozen
class ResolutionLimit:
    """The largest image that a model's processor does not downscale.

    Args:
        width: Width in pixels; None for no limit.
        height: Height in pixels; None for no limit.
        area: Area in pixels; None for no limit.
    """

    width: int | None = None
    height: int | None = None
    area: int | None = None

    def reduction(self, width: int, height: int) -> int:
        """Return the largest integer by which both sides can be divided without losing visible detail."""
        factors = [
            *([width / self.width] if self.width else []),
            *([height / self.height] if self.height else []),
            *([math.sqrt(width * height / self.area)] if self.area else []),
        ]
        # With a limit per side, the processor may scale each side alone; the smaller factor is safe for both.
        return max(1, int(min(factors, default=1)))


ANY_SIZE = ResolutionLimit()
"""No limit: nothing is downscaled."""
