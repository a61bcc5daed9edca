"""How a camera was held, from the one entry of EXIF that says so; nothing else of it is read.

A directory may name any number of values of any size, each of them the whole block again: readers that load
them all turn 20 MB into gigabytes.
"""

from __future__ import annotations

import struct

from PIL import Image

_ORIENTATION = 0x0112
_MAX_ENTRIES = 512
"""Of the first directory; cameras write some twenty."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What undoes each value. Source: Exif 2.3, 4.6.4 A, tag Orientation."""


def orientation_of(exif: bytes) -> int:
    """Return the orientation, 1 to 8, that a block of EXIF names; 1 if it names none or is broken."""
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
    """Return the image as it was seen."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)
