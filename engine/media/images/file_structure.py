"""What must be known of an image's file before a decoder sees it, read from its bytes."""

from __future__ import annotations

import re
import struct

from greenroom.engine.media.images.orientation import orientation_of

MAX_SCANS = 64
"""Of a progressive JPEG, each over the whole image; encoders make some ten."""
MAX_FRAMES = 1_000
"""Of a GIF, of which the first alone is shown."""

_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])")
"""Ends a scan's data: neither a stuffed byte nor a restart."""

_SOI, _EOI, _SOS, _EXIF = 0xD8, 0xD9, 0xDA, 0xE1
_ADOBE = 0xEE
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length."""


class BrokenFileError(ValueError):
    """The file is not what its first bytes say, or is made to be costly; the text says what."""


def plain_jpeg(data: bytes) -> tuple[bytes, int]:
    """Return a JPEG without what is no part of the picture (EXIF, profiles, thumbnails), and its orientation.

    Raises:
        BrokenFileError: It has no picture, or more scans than a picture needs.
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
    """Return where the segment of the next marker begins, and which it is."""
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
    """Return where the first picture of a file ends, of which `at` is in the header of the first scan."""
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
    """Return width and height of a WebP's canvas, for which its decoder would at once take memory.

    Raises:
        BrokenFileError: It says none.
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
    """Refuse a GIF with very many frames, without decoding any.

    Raises:
        BrokenFileError: It has more than `MAX_FRAMES`.
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
    """Return the bytes of the table that the flags at a place announce."""
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0
