"""What of an MP4 or QuickTime file (ISO/IEC 14496-12) is needed to hear it: one track of sound."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Protocol

import attrs

_FIRST = frozenset(
    b"ediw emsg free ftyp junk mdat moof moov pict pnot prfl sidx skip styp udta uuid wide".split()
)
"""Boxes with which such files begin."""
_NEEDED = frozenset((b"mvhd", b"mvex"))
"""Boxes of a movie beside its tracks."""
_MOST_BOXES = 1_000
"""That are looked at on each level."""


class SeekableFile(Protocol):
    """What is read of a file."""

    @property
    def size(self) -> int:
        """In bytes."""

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place in the file."""

    def read(self, size: int) -> bytes:
        """Return the next bytes."""


@attrs.frozen
class _Box:
    """A box.

    Args:
        at: Where its name stands.
        start: Where its content begins; `end` likewise.
    """

    name: bytes
    at: int
    start: int
    end: int


def is_movie(file: SeekableFile) -> bool:
    """Return whether a file begins as those of MP4 and QuickTime do."""
    first = next(_boxes(file, 0, file.size), None)
    return first is not None and first.name in _FIRST


def unneeded_boxes(file: SeekableFile) -> tuple[int, ...]:
    """Return where the names of boxes stand without which the file's first track of sound is the same.

    FFmpeg makes an index of every track that it sees, and a few hundred bytes may promise one of 45 MB.
    """
    movie = _find(file, 0, file.size, b"moov")
    if movie is None:
        return ()
    boxes = list(itertools.islice(_boxes(file, movie.start, movie.end), _MOST_BOXES))
    tracks = [box for box in boxes if box.name == b"trak"]
    kept = next((track for track in tracks if _is_sound(file, track)), next(iter(tracks), None))
    return tuple(box.at for box in boxes if box is not kept and box.name not in _NEEDED)


def _is_sound(file: SeekableFile, track: _Box) -> bool:
    media = _find(file, track.start, track.end, b"mdia")
    handler = media and _find(file, media.start, media.end, b"hdlr")
    if handler is None:
        return False
    file.seek(handler.start + 8)
    return file.read(4) == b"soun"


def _find(file: SeekableFile, start: int, end: int, name: bytes) -> _Box | None:
    boxes = itertools.islice(_boxes(file, start, end), _MOST_BOXES)
    return next((box for box in boxes if box.name == name), None)


def _boxes(file: SeekableFile, start: int, end: int) -> Iterator[_Box]:
    """Yield the boxes between two places, as far as their sizes make sense."""
    while start + 8 <= end:
        file.seek(start)
        head = file.read(16)
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
        yield _Box(name, start + 4, content, min(start + size, end))
        start += size
