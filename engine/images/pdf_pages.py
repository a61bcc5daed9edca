"""The pages of a PDF as images.

They are drawn in a process of their own: PDFium takes no time-out, belongs to one thread at a time, and what
a hostile file breaks in it would break in the server.
"""

from __future__ import annotations

import importlib.util
import math
import struct
import subprocess
import sys
from pathlib import Path

from PIL import Image

from greenroom.engine.images import pdf_process
from greenroom.engine.images.formats import is_pdf, name_of
from greenroom.engine.images.limits import ImageLimits
from greenroom.schemas.problems import Problem, ProblemError, invalid

INVALID_DOCUMENT = "invalid_document"
"""Code of the problem of a file that cannot be drawn."""

PAGE_PIXELS = 4 * 1024 * 1024
"""Of a page: A4 at 150 dots per inch has half as many."""
SECONDS = 20.0
"""That the pages of all documents of a request may take."""
_BYTES = 2 * 1024**3
"""Of address space; a page of pictures takes some hundred megabytes."""


def draw_pages(
    data: bytes,
    limits: ImageLimits = ImageLimits(),  # noqa: B008
    *,
    seconds: float = SECONDS,
    param: str | None = None,
) -> list[Image.Image]:
    """Return the pages of a document, in order, as RGB.

    Args:
        seconds: That they may take.
        param: What the client calls the document, for errors.

    Raises:
        ProblemError: 400 that says what is wrong with the file; 501: the library that draws is missing.
    """
    named = f"`{param}`" if param else "The document"
    if len(data) > limits.bytes_each:
        limit = limits.bytes_each // 1_000_000
        detail = f"{named} has {len(data):,} bytes; a document may have at most {limit} MB."
        raise invalid(detail, param, "document_too_large")
    if not is_pdf(data):
        detail = f"{named} is {name_of(data)}; documents must be PDF."
        raise invalid(detail, param, INVALID_DOCUMENT)
    if importlib.util.find_spec("pypdfium2") is None:
        detail = "Documents need the library pypdfium2: `pip install pypdfium2`."
        raise ProblemError(Problem(501, "library_missing", detail))
    drawn, reason = _run(data, limits.pages, seconds)
    if reason:
        raise invalid(f"{named} cannot be shown: {reason}.", param, INVALID_DOCUMENT)
    return _images(drawn)


def _run(data: bytes, max_pages: int, seconds: float) -> tuple[bytes, str]:
    """Return what the process has written, and what was wrong with the file; empty if nothing was."""
    arguments = (max_pages, PAGE_PIXELS, _BYTES, math.ceil(seconds) + 1)
    command = [sys.executable, "-I", str(Path(pdf_process.__file__)), *map(str, arguments)]
    try:
        ran = subprocess.run(command, input=data, capture_output=True, timeout=max(seconds, 0.0), check=False)
    except subprocess.TimeoutExpired:
        return b"", f"drawing its pages takes too long (the documents of a request have {SECONDS:g} seconds)"
    if ran.returncode == pdf_process.REFUSED:
        return b"", ran.stderr.decode("utf-8", "replace").strip()[-300:]
    return ran.stdout, "" if ran.returncode == 0 else "drawing its pages takes too much, or it is broken"


def _images(drawn: bytes) -> list[Image.Image]:
    images = []
    at = 0
    while at < len(drawn):
        width, height = struct.unpack_from("<II", drawn, at)
        end = at + 8 + width * height * 3
        images.append(Image.frombytes("RGB", (width, height), drawn[at + 8 : end]))
        at = end
    return images
