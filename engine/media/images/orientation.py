"""An image's orientation, read from its one EXIF entry; nothing else of EXIF is parsed.

A directory may declare any number of values, each as large as the whole block: readers that load all of them
turn 20 MB into gigabytes.
"""

from __future__ import annotations

import struct

from PIL import Image

_ORIENTATION = 0x0112
_MAX_ENTRIES = 512
"""Limit of entries read from the first directory; cameras write about twenty."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transformation that undoes each orientation. Source: Exif 2.3, 4.6.4 A, tag Orientation."""


def orientation_of(exif: bytes) -> int:
    """Return the orientation, 1 to 8, in an EXIF block; 1 if there is none or it is broken."""
    block = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(bytes(block[:2]))
    if order is None:
        return 1
    try:
        (at,) = struct.unpack_from(f"{order}4xI", block)
        (count,) = struct.unpack_from(f"{order}H", block, at)
        for index in range(min(count, _MAX_ENTRIES)):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", block, at + 2 + 12 * index)
            if tag == _ORIENTATION and kind == 3:
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass
    return 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Return the image with its orientation undone."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)
