"""Decoding of large images in a separate process, so that other requests do not wait.

Decoders of WebP, PNG and HEIC hold the GIL for a whole image: 34 bytes of WebP may take a second.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

from PIL import Image

from greenroom.engine.media import image_process
from greenroom.engine.media.decoding_process import REFUSED, DecodingLimits, TimeLeft, run_decoder
from greenroom.engine.media.images import (
    ANY_SIZE,
    INVALID_IMAGE,
    ImageLimits,
    ResolutionLimit,
    decode_image,
    is_large,
)
from greenroom.engine.resources.preparation_steps import ClientSemaphore, PreparationSteps
from greenroom.schemas.problems import invalid

SECONDS = 20.0  # Time limit of one image in seconds
AT_ONCE = 2  # Number of decoding processes at once, for all models
_BYTES = 3 * 1024**3
_ROWS_PIXELS = 1024 * 1024  # Number of pixels copied at once: a few milliseconds
_DECODING = ClientSemaphore(AT_ONCE)


def decode_in_steps(
    data: bytes,
    limits: ImageLimits = ImageLimits(),  # noqa: B008
    *,
    resolution: ResolutionLimit = ANY_SIZE,
    param: str | None = None,
    client: str = "",
) -> PreparationSteps[Image.Image]:
    """Return an image as `decode_image` does; a large one is decoded in a process while this yields.

    Closing the generator kills the process.

    Args:
        client: The client's name; each client has one large image decoded at a time.

    Raises:
        ProblemError: 400 that says what is wrong with the file and what is accepted.
    """
    if not is_large(data, limits, resolution):
        return decode_image(data, limits, resolution=resolution, param=param)
    return (yield from _DECODING.run(client, _decode(data, limits, resolution, param)))


def _decode(
    data: bytes, limits: ImageLimits, resolution: ResolutionLimit, param: str | None
) -> PreparationSteps[Image.Image]:
    sizes = (limits.pixels, resolution.width or 0, resolution.height or 0, resolution.area or 0)
    process = DecodingLimits(_BYTES, math.ceil(SECONDS) + 1)
    command = process.command(Path(image_process.__file__), *sizes, param or "")
    ended = yield from run_decoder(command, data, TimeLeft(SECONDS))
    if ended.status == 0:
        return _assembled(ended.written)
    if ended.status == REFUSED and ended.said:
        raise invalid(ended.said, param, INVALID_IMAGE)
    named = f"`{param}`" if param else "The image"
    detail = f"{named} takes too much time or memory to decode. Send a smaller image."
    raise invalid(detail, param, INVALID_IMAGE)


def _assembled(written: bytes) -> Image.Image:
    width, height = struct.unpack_from("<II", written)
    image = Image.new("RGB", (width, height))
    pixels = memoryview(written)[8:]
    rows = max(1, _ROWS_PIXELS // width)
    for top in range(0, height, rows):
        size = (width, min(rows, height - top))
        piece = pixels[top * width * 3 : (top + size[1]) * width * 3]
        image.paste(Image.frombytes("RGB", size, bytes(piece)), (0, top))
    return image
