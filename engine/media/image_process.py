"""Decodes one large image: the program that `large_images` runs within limits.

Reads the file from standard input. Writes its width and height, as two unsigned 32-bit integers, and its
pixels as RGB; raises ValueError with the reason if the file is invalid.
"""

from __future__ import annotations

import struct
import sys

from greenroom.engine.media.images import ImageLimits, ResolutionLimit, decode_image
from greenroom.schemas.problems import ProblemError

# Shares the server's decoder for small images, so that both yield the same pixels; imports no MLX.

_ROWS = 256


def write_image(data: bytes, limits: ImageLimits, resolution: ResolutionLimit, param: str | None) -> None:
    """Write an image's size and pixels to standard output. Raises ValueError: the file is invalid; the text
    says why.
    """
    try:
        image = decode_image(data, limits, resolution=resolution, param=param)
    except ProblemError as error:
        raise ValueError(error.problem.detail) from None
    out = sys.stdout.buffer
    out.write(struct.pack("<II", image.width, image.height))
    for top in range(0, image.height, _ROWS):
        out.write(image.crop((0, top, image.width, min(top + _ROWS, image.height))).tobytes())
    out.flush()


if __name__ == "__main__":
    pixels, width, height, area = (int(argument) or None for argument in sys.argv[1:5])
    write_image(
        sys.stdin.buffer.read(),
        ImageLimits(pixels=pixels or 0),
        ResolutionLimit(width, height, area),
        sys.argv[5] or None,
    )
