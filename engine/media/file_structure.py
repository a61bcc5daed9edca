"""Checks of the structure of images and of MP4 files (ISO/IEC 14496-12), before a decoder sees them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Protocol

import attrs
from PIL import Image

MAX_SCANS = 64  # Limit of scans in a progressive JPEG, each over the whole image; encoders write about ten
MAX_FRAMES = 1_000  # Limit of frames in a GIF, although only the first is shown
MAX_PARTS = 100_000
"""Limit of a file's segments, chunks or blocks, on each of which readers spend microseconds of Python."""

_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
"""Marker that ends a scan's data: neither a stuffed byte nor a restart.

It begins with the last byte of a filling: a pattern of all its bytes would take time with their square.
"""

_FILLED = re.compile(rb"\xff+(.)", re.DOTALL)
_SOI, _EOI, _SOS, _EXIF = 0xD8, 0xD9, 0xDA, 0xE1
_ADOBE = 0xEE
_ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # Markers without a length


class BrokenFileError(ValueError):
    """Raised when a file does not match its first bytes, or is crafted to be costly."""


def plain_jpeg(data: bytes) -> tuple[bytes, int]:
    """Return a JPEG's picture without metadata (EXIF, profiles, thumbnails), and its orientation. Raises
    BrokenFileError: it has no picture, or too many segments or scans.
    """
    head = [data[:2]]
    at, orientation, parts = 2, 0, _parts()
    while True:
        next(parts)
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
    match = _FILLED.match(data, at)
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
    scans, parts = 1, _parts()
    while (match := _MARKER.search(data, at)) is not None:
        next(parts)
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


def _parts() -> Iterator[int]:
    """Yield once for each part of a file. Raises BrokenFileError: there are too many."""
    yield from range(MAX_PARTS)
    raise BrokenFileError(f"it is cut into more than {MAX_PARTS:,} parts")


def check_chunks(data: bytes) -> None:
    """Reject a PNG with too many chunks, without reading any. Raises BrokenFileError."""
    at, parts = 8, _parts()
    while data[at + 4 : at + 8] not in (b"", b"IEND"):
        next(parts)
        at += 12 + int.from_bytes(data[at : at + 4], "big")


def check_frames(data: bytes) -> None:
    """Reject a GIF with too many frames or blocks, without decoding any. Raises BrokenFileError."""
    at, frames, parts = 13 + _color_table(data, 10), 0, _parts()
    while data[at : at + 1] in (b"!", b","):
        next(parts)
        if data[at : at + 1] == b",":
            frames += 1
            if frames > MAX_FRAMES:
                raise BrokenFileError(f"it is an animation of more than {MAX_FRAMES:,} frames")
            at += 11 + _color_table(data, at + 9)
        else:
            at += 2
        while at < len(data) and data[at]:
            next(parts)
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


_FIRST = frozenset(
    b"ediw emsg free ftyp junk mdat moof moov pict pnot prfl sidx skip styp udta uuid wide".split()
)
"""Types of atoms at the start of MP4 and QuickTime files."""
_NEEDED = frozenset((b"mvhd", b"mvex"))  # Atoms of a movie that are needed besides its tracks
_MAX_ATOMS = 2_000  # Limit of inspected atoms per file


class SeekableFile(Protocol):
    @property
    def size(self) -> int:
        """Size in bytes."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move the read position."""

    def read(self, size: int) -> bytes:
        """Return the next bytes."""


@attrs.frozen
class _Atom:
    """The position of an atom in its file, in bytes. `end`: offset of its content's end."""

    name: bytes
    at: int
    start: int
    end: int


def is_mp4(file: SeekableFile) -> bool:
    """Return whether a file begins like MP4 or QuickTime."""
    first = next(_Atoms(file).within(0, file.size), None)
    return first is not None and first.name in _FIRST


def unneeded_atoms(file: SeekableFile) -> tuple[int, ...]:
    """Return the offsets of the names of all atoms that the first audio track does not need.

    FFmpeg indexes every track that it sees; a track of a few hundred bytes may claim an index of 45 MB.
    """
    atoms = _Atoms(file)
    movie = atoms.find(0, file.size, b"moov")
    if movie is None:
        return ()
    inner = list(atoms.within(movie.start, movie.end))
    tracks = [atom for atom in inner if atom.name == b"trak"]
    kept = next(filter(atoms.is_sound, tracks), next(iter(tracks), None))
    return tuple(atom.at for atom in inner if atom is not kept and atom.name not in _NEEDED)


class _Atoms:
    def __init__(self, file: SeekableFile) -> None:
        self._file = file
        self._left = _MAX_ATOMS

    def within(self, start: int, end: int) -> Iterator[_Atom]:
        """Yield the atoms between two offsets, as far as their sizes are valid."""
        while start + 8 <= end and self._left > 0:
            self._left -= 1
            self._file.seek(start)
            head = self._file.read(16)
            if len(head) < 8:
                return
            size, name = struct.unpack_from(">I4s", head)
            content = start + 8
            if size == 1 and len(head) == 16:
                (size,) = struct.unpack_from(">Q", head, 8)
                content = start + 16
            elif size == 0:
                size = end - start
            if start + size < content:
                return
            yield _Atom(name, start + 4, content, min(start + size, end))
            start += size

    def find(self, start: int, end: int, name: bytes) -> _Atom | None:
        return next((atom for atom in self.within(start, end) if atom.name == name), None)

    def is_sound(self, track: _Atom) -> bool:
        media = self.find(track.start, track.end, b"mdia")
        handler = media and self.find(media.start, media.end, b"hdlr")
        if handler is None:
            return False
        self._file.seek(handler.start + 8)
        return self._file.read(4) == b"soun"
