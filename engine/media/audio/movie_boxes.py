"""What of an MP4 or QuickTime file (ISO/IEC 14496-12) is needed to hear it: one track of sound."""

from __future__ import annotations

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
_MOST_BOXES = 2_000
"""That are looked at in a file."""


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
    first = next(_Boxes(file).within(0, file.size), None)
    return first is not None and first.name in _FIRST


def unneeded_boxes(file: SeekableFile) -> tuple[int, ...]:
    """Return where the names of boxes stand without which the file's first track of sound is the same.

    FFmpeg makes an index of every track that it sees, and a few hundred bytes may promise one of 45 MB.
    """
    boxes = _Boxes(file)
    movie = boxes.find(0, file.size, b"moov")
    if movie is None:
        return ()
    inner = list(boxes.within(movie.start, movie.end))
    tracks = [box for box in inner if box.name == b"trak"]
    kept = next(filter(boxes.is_sound, tracks), next(iter(tracks), None))
    return tuple(box.at for box in inner if box is not kept and box.name not in _NEEDED)


class _Boxes:
    """Looks at a file's boxes, at so many of them in all."""

    def __init__(self, file: SeekableFile) -> None:
        self._file = file
        self._left = _MOST_BOXES

    def within(self, start: int, end: int) -> Iterator[_Box]:
        """Yield the boxes between two places, as far as their sizes make sense."""
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
            yield _Box(name, start + 4, content, min(start + size, end))
            start += size

    def find(self, start: int, end: int, name: bytes) -> _Box | None:
        """Return the first box of a name between two places."""
        return next((box for box in self.within(start, end) if box.name == name), None)

    def is_sound(self, track: _Box) -> bool:
        """Return whether a track is one of sound."""
        media = self.find(track.start, track.end, b"mdia")
        handler = media and self.find(media.start, media.end, b"hdlr")
        if handler is None:
            return False
        self._file.seek(handler.start + 8)
        return self._file.read(4) == b"soun"
