"""Draws a PDF's pages in a process of its own: the program that `pdf_pages` runs. It imports nothing of ours.

Reads the file from its standard input. Writes for each page its width and height, as two unsigned numbers of
32 bits, and its pixels as RGB; or one line about what is wrong to its standard error, and ends with 3.
"""

from __future__ import annotations

import math
import os
import resource
import struct
import sys
from typing import Any

REFUSED = 3
"""Exit status of a file that cannot be drawn."""

_NICENESS = 10
"""Of this process: the answers that a server is writing come first."""
_POINTS = 72
_DOTS = 150
"""Per inch, at which print of ten points can be read."""


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
        room = f"there is room for {max_pages}: all documents of a request share its pages (images_max_pages)"
        raise ValueError(f"it has {pages:,} pages, but {room}")
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


def _limit(nbytes: int, seconds: int) -> None:
    """Have the system end this process where the file takes more than that."""
    for kind, value in ((resource.RLIMIT_AS, nbytes), (resource.RLIMIT_CPU, seconds)):
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):  # macOS has no limit of that kind
            continue


if __name__ == "__main__":
    os.nice(_NICENESS)
    _limit(int(sys.argv[3]), int(sys.argv[4]))
    try:
        draw(sys.stdin.buffer.read(), int(sys.argv[1]), int(sys.argv[2]))
    except (ValueError, MemoryError) as error:
        print(error or "it takes too much memory", file=sys.stderr)
        sys.exit(REFUSED)
