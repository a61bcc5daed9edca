"""A file while it is fetched: a part that grows, and becomes a blob of the cache once its hash is right."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from greenroom.engine.catalog.hub.repository import RemoteFile

SUFFIX = ".greenroom.part"
_PIECE = 4 << 20


class PartFile:
    """The part of a file that has arrived, with its hash so far. Methods block; one thread at a time.

    A part is named by the hash of the whole file, so a part of an older version is never continued.

    Args:
        blob: Path of the whole file in the cache.

    Attributes:
        have: Number of bytes that have arrived.
        resumed: True if some of them came from an earlier run.
    """

    def __init__(self, file: RemoteFile, blob: Path) -> None:
        self.file = file
        self.blob = blob
        self.path = blob.with_name(blob.name + SUFFIX)
        self.have = 0
        self.resumed = False
        self._hash = _new_hash(file)
        self._descriptor: int | None = None

    @property
    def is_whole(self) -> bool:
        """True if all bytes have arrived, right or wrong."""
        return self.have == self.file.size

    def open(self, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Open the part, or begin one, and hash what is there.

        Args:
            checkpoint: Function that is called between pieces; it may raise, to end the reading.

        Raises:
            OSError: The disk refuses.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o644)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(self.path))
        if os.fstat(self._descriptor).st_size > self.file.size:
            self.restart()
        while piece := os.read(self._descriptor, _PIECE):
            checkpoint()
            self._hash.update(piece)
            self.have += len(piece)
        self.resumed = self.have > 0

    def append(self, data: bytes | bytearray) -> None:
        """Add arrived bytes.

        Raises:
            OSError: The disk refuses; what was written before stays.
        """
        assert self._descriptor is not None
        written = 0
        while written < len(data):
            # Copied, since a view that an error keeps alive would hold the caller's buffer.
            piece = bytes(data[written:])
            taken = os.write(self._descriptor, piece)
            self._hash.update(piece[:taken])
            self.have += taken
            written += taken

    def restart(self) -> None:
        """Drop what has arrived, and begin anew."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hash = _new_hash(self.file)
        self.have, self.resumed = 0, False

    def finish(self) -> bool:
        """Make the whole file a blob if its hash is right; return whether it is.

        Raises:
            OSError: The disk refuses.
        """
        assert self._descriptor is not None
        if self._hash.hexdigest() != self.file.digest:
            return False
        os.fsync(self._descriptor)
        os.replace(self.path, self.blob)
        return True

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the part, which stays for the next run."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _new_hash(file: RemoteFile) -> hashlib._Hash:
    if len(file.digest) == 64:
        return hashlib.sha256()
    # A blob's name in git. Source: gitformat-pack(5), "Object types"; the hub lists it for small files.
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
