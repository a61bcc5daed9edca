"""Checks of an image file's structure, on its raw bytes, before a decoder sees it."""

from __future__ import annotations

import re
import struct

from PIL import Image

MAX_SCANS = 64  # Limit of scans in a progressive JPEG, each over the whole image; encoders write about ten
MAX_FRAMES = 1_000  # Limit of frames in a GIF, although only the first is shown

_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")
"""Marker that ends a scan's data: neither a stuffed byte nor a restart."""

_SOI, _EOI, _SOS, _EXIF = 0xD8, 0xD9, 0xDA, 0xE1
_ADOBE = 0xEE
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # Markers without a length


class BrokenFileError(ValueError):
    """Raised when a file does not match its first bytes, or is crafted to be costly."""


def plain_jpeg(data: bytes) -> tuple[bytes, int]:
    """Return a JPEG's picture without metadata (EXIF, profiles, thumbnails), and its orientation. Raises
    BrokenFileError: it has no picture, or too many scans.
    """
    head = [data[:2]]
    at, orientation = 2, 0
    while True:
        at, marker = _next_marker(data, at)
        if marker == _EOI:
            raise BrokenFileError("it ends before its picture begins")
        if marker in _ALONE or marker == _SOI:
            continue
        end = at + _segment_length(data, at)
        if marker == _SOS:
            break
        if marker == _EXIF and not orientation and data[at + 2 : at + 8] == b"Exif\0\0":
            orientation = orientation_of(data[at + 2 : end])
        if not (0xE1 <= marker <= 0xEF or marker == 0xFE) or marker == _ADOBE:
            head.append(data[at - 2 : end])
        at = end
    end = _end_of_scans(data, at)
    return b"".join([*head, data[at - 2 : end]]), orientation or 1


def _next_marker(data: bytes, at: int) -> tuple[int, int]:
    if data[at : at + 1] != b"\xff":
        raise BrokenFileError("its segments are broken")
    match = re.compile(rb"\xff+(.)", re.DOTALL).match(data, at)
    if match is None:
        raise BrokenFileError("it is cut off")
    return match.end(), match.group(1)[0]


def _segment_length(data: bytes, at: int) -> int:
    if at + 2 > len(data):
        raise BrokenFileError("it is cut off")
    length = int.from_bytes(data[at : at + 2], "big")
    if length < 2 or at + length > len(data):
        raise BrokenFileError("it is cut off")
    return length


def _end_of_scans(data: bytes, at: int) -> int:
    """Return the end of the file's first picture; `at` is in the header of its first scan."""
    scans = 1
    while (match := _MARKER.search(data, at)) is not None:
        marker, at = match.group(1)[0], match.end()
        if marker == _EOI:
            return at
        if marker in _ALONE:
            continue
        scans += marker == _SOS
        if scans > MAX_SCANS:
            raise BrokenFileError(f"it draws its picture more than {MAX_SCANS} times")
        at += _segment_length(data, at)
    return len(data)


def webp_size(data: bytes) -> tuple[int, int]:
    """Return width and height of a WebP's canvas, which its decoder would allocate at once. Raises
    BrokenFileError: the header states no size.
    """
    kind, body = data[12:16], data[20:30]
    if len(body) == 10 and kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if len(body) == 10 and kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", body[6:10])
        return width & 0x3FFF, height & 0x3FFF
    if len(body) >= 5 and kind == b"VP8L" and body[0] == 0x2F:
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    raise BrokenFileError("it does not say how large it is")


def check_frames(data: bytes) -> None:
    """Reject a GIF with too many frames, without decoding any. Raises BrokenFileError: it has more than
    `MAX_FRAMES`.
    """
    at, frames = 13 + _color_table(data, 10), 0
    while data[at : at + 1] in (b"!", b","):
        if data[at : at + 1] == b",":
            frames += 1
            if frames > MAX_FRAMES:
                raise BrokenFileError(f"it is an animation of more than {MAX_FRAMES:,} frames")
            at += 11 + _color_table(data, at + 9)
        else:
            at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1


def _color_table(data: bytes, at: int) -> int:
    """Return the size in bytes of the color table announced by the flags at `at`."""
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


# An image's orientation, read from its one EXIF entry; nothing else of EXIF is parsed.
#
# A directory may declare any number of values, each as large as the whole block: readers that load all of
# them turn 20 MB into gigabytes.

_ORIENTATION = 0x0112
_MAX_ENTRIES = 512  # Limit of entries read from the first directory; cameras write about twenty

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
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)
