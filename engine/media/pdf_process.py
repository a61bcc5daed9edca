"""Renders a PDF's pages: the program that `pdf_pages` runs within limits. It imports no module of the server.

Reads the file from standard input. Writes for each page its width and height, as two unsigned 32-bit
integers, and its pixels as RGB; raises ValueError with the reason if the file is invalid.
"""

from __future__ import annotations

import math
import struct
import sys
from typing import Any

_POINTS = 72
_DOTS = 150  # Resolution in dots per inch, at which 10-point print is legible

SHARED = "all documents of a request share its pages (images_max_pages)"
"""Explanation of the page limit in errors."""


def draw(data: bytes, max_pages: int, max_pixels: int) -> None:
    """Write every page of a file to standard output. `max_pixels`: limit of pixels per page; larger pages are
    scaled down. Raises ValueError: the file is invalid; the text says why.
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
    """Return the scale in pixels per point."""
    if not (math.isfinite(width * height) and width > 0 and height > 0):
        raise ValueError("a page has no size")
    scale = min(_DOTS / _POINTS, math.sqrt(max_pixels / (width * height)))
    # Sides are rounded up to at least one pixel, so an extremely narrow page could exceed the limit.
    return min(scale, max_pixels / 4 / max(width, height))


def _write(bitmap: Any, max_pixels: int) -> None:
    image = bitmap.to_pil().convert("RGB")
    if image.width * image.height > 2 * max_pixels:
        raise ValueError("a page is too large")
    sys.stdout.buffer.write(struct.pack("<II", image.width, image.height) + image.tobytes())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    draw(sys.stdin.buffer.read(), int(sys.argv[1]), int(sys.argv[2]))
