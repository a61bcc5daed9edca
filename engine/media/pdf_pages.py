"""Rendering of a PDF's pages to images.

PDFium runs in a separate process: it has no time-out, may be used by one thread at a time, and a hostile
file that crashes it must not crash the server.
"""

from __future__ import annotations

import importlib.util
import math
import struct
from pathlib import Path

from PIL import Image

from greenroom.engine.media import pdf_process
from greenroom.engine.media.decoding_process import REFUSED, DecodingLimits, TimeLeft, run_decoder
from greenroom.engine.media.images import ImageLimits, name_of
from greenroom.engine.resources.preparation_steps import PreparationSteps, StepSemaphore
from greenroom.schemas.file_formats import is_pdf
from greenroom.schemas.problems import Problem, ProblemError, invalid

INVALID_DOCUMENT = "invalid_document"  # Problem code of a file that cannot be rendered

PAGE_PIXELS = 4 * 1024 * 1024  # Limit of pixels per page: A4 at 150 dpi has half as many
SECONDS = 20.0  # Time limit in seconds for all documents of a request
_BYTES = 2 * 1024**3  # Memory limit in bytes; a page of pictures takes some hundred megabytes
AT_ONCE = 2
"""Number of rendering processes at once for all models; further ones wait without blocking other requests."""
_DRAWING = StepSemaphore(AT_ONCE)


def draw_pages(
    data: bytes,
    limits: ImageLimits = ImageLimits(),  # noqa: B008
    *,
    left: TimeLeft | None = None,
    param: str | None = None,
) -> PreparationSteps[list[Image.Image]]:
    """Return a document's pages, in order, as RGB; yields while a process renders them.

    Closing the generator kills the process.

    Args:
        left: Time left for all documents of the request; waiting for a turn does not count.

    Raises:
        ProblemError: 400 that says what is wrong with the file; 501: the rendering library is missing.
    """
    named = f"`{param}`" if param else "The document"
    if len(data) > limits.bytes_each:
        limit = limits.bytes_each >> 20
        detail = f"{named} has {len(data):,} bytes; a document may have at most {limit} MB."
        raise invalid(detail, param, "document_too_large")
    if not is_pdf(data):
        detail = f"{named} is {name_of(data)}; documents must be PDF."
        raise invalid(detail, param, INVALID_DOCUMENT)
    if importlib.util.find_spec("pypdfium2") is None:
        detail = "Documents need the library pypdfium2: `pip install pypdfium2`."
        raise ProblemError(Problem(501, "library_missing", detail))
    yield from _DRAWING.acquire()
    try:
        drawn, reason = yield from _run(data, limits.pages, left or TimeLeft(SECONDS))
    finally:
        _DRAWING.release()
    if reason:
        if limits.single:
            reason = reason.replace(pdf_process.SHARED, "this model takes one image at a time")
        raise invalid(f"{named} cannot be shown: {reason}.", param, INVALID_DOCUMENT)
    return _images(drawn)


def _run(data: bytes, max_pages: int, left: TimeLeft) -> PreparationSteps[tuple[bytes, str]]:
    limits = DecodingLimits(_BYTES, math.ceil(left.seconds) + 1)
    command = limits.command(Path(pdf_process.__file__), max_pages, PAGE_PIXELS)
    ended = yield from run_decoder(command, data, left)
    if ended.status is None:
        return b"", f"drawing its pages takes too long (a request's documents have {SECONDS:g} s)"
    if ended.status == REFUSED:
        return b"", ended.said
    return ended.written, "" if ended.status == 0 else "drawing its pages takes too much, or it is broken"


def _images(drawn: bytes) -> list[Image.Image]:
    images = []
    at = 0
    while at < len(drawn):
        width, height = struct.unpack_from("<II", drawn, at)
        end = at + 8 + width * height * 3
        images.append(Image.frombytes("RGB", (width, height), drawn[at + 8 : end]))
        at = end
    return images
