"""Draws a PDF's pages: the program that `pdf_pages` runs within limits. It imports nothing of ours.

Reads the file from its standard input. Writes for each page its width and height, as two unsigned numbers of
32 bits, and its pixels as RGB; or raises ValueError about what is wrong with the file.
"""

from __future__ import annotations

import math
import struct
import sys
from typing import Any

_POINTS = 72
_DOTS = 150
"""Per inch, at which print of ten points can be read."""

SHARED = "all documents of a request share its pages (images_max_pages)"
"""Why there is room for no more."""


def draw(data: bytes, max_pages: int, max_pixels: int) -> None:
    """Write every page of a file.

    Args:
        max_pages: Of the file.
        max_pixels: Of a page, which is drawn smaller if it has more.

    Raises:
        ValueError: What is wrong with the file.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
        pages = len(document)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise ValueError("it is encrypted" if locked else "it is broken, or no PDF") from None
    if not pages:
        raise ValueError("it has no pages")
    if pages > max_pages:
        raise ValueError(f"it has {pages:,} pages, but there is room for {max_pages}: {SHARED}")
    for number in range(pages):
        try:
            page = document[number]
            width, height = page.get_size()
            bitmap = page.render(scale=_scale(width, height, max_pixels), rev_byteorder=True)
        except (pypdfium2.PdfiumError, ValueError) as error:
            raise ValueError(f"its page {number + 1} cannot be drawn") from error
        _write(bitmap, max_pixels)
        page.close()


def _scale(width: float, height: float, max_pixels: int) -> float:
    """Return the pixels for each point."""
    if not (math.isfinite(width * height) and width > 0 and height > 0):
        raise ValueError("a page has no size")
    scale = min(_DOTS / _POINTS, math.sqrt(max_pixels / (width * height)))
    # Sides are rounded up, and have a pixel at least.
    return min(scale, max_pixels / 4 / max(width, height))


def _write(bitmap: Any, max_pixels: int) -> None:
    image = bitmap.to_pil().convert("RGB")
    if image.width * image.height > 2 * max_pixels:
        raise ValueError("a page is too large")
    sys.stdout.buffer.write(struct.pack("<II", image.width, image.height) + image.tobytes())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    draw(sys.stdin.buffer.read(), int(sys.argv[1]), int(sys.argv[2]))
