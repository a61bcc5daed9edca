"""MP4 and QuickTime atoms (ISO/IEC 14496-12): finds all that decoding one audio track does not need."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Protocol

import attrs

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
