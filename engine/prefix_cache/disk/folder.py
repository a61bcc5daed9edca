"""A model's files of the disk tier, within the bytes that all models together may take.

Other processes may use the same folder: files appear whole (renamed from a temporary name), and one that has
vanished is no error. Nothing is ever removed but regular files with names that only we give, in folders with
names that only we give.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import structlog

from greenroom.engine.prefix_cache.disk.block import NAME, CacheBlock, Tensors
from greenroom.engine.prefix_cache.disk.block_file import BadFileError, read_kept, read_tensors, write_kept

log = structlog.get_logger()

OURS = "greenroom-prefixes"
_MODEL = re.compile(r"^[0-9a-f]{32}$")
_TEMPORARY = re.compile(r"^(span|state)-[0-9a-f]{32}\.\d+\.tmp$")
_ABANDONED = 600.0
"""Seconds after which a temporary file is what a process left that was killed."""

_SLACK = 16
"""Other processes' files are counted again after a share of the limit of 1 / this was written."""


@attrs.frozen(order=True)
class _Entry:
    modified: int
    size: int
    path: Path


class DiskFolder:
    """The files of one model; used by one thread but for `read`.

    Args:
        root: The operator's folder.
        digest: Of the model, 32 hexadecimal digits.
        limit: Bytes that the files of all models may take.
    """

    def __init__(self, root: Path, digest: str, limit: int) -> None:
        self.digest = digest
        self.nbytes = 0
        self.evictions = 0
        self.removed = 0
        self._all = root / OURS
        self._home = self._all / digest
        self._limit = limit
        self._since = 0

    def scan(self) -> Iterator[CacheBlock]:
        """Everything of this model that can be used; what cannot is removed.

        Raises:
            OSError: The folder cannot be made.
        """
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(0)
        with os.scandir(self._home) as entries:
            names = [entry.name for entry in entries if NAME.match(entry.name) and _is_file(entry)]
        for name in names:
            with contextlib.suppress(OSError):
                try:
                    yield read_kept(self._home / name, self.digest)
                except BadFileError as error:
                    self.discard(name, str(error))

    def read(self, name: str) -> Tensors:
        """All that a file holds.

        Raises:
            BadFileError: It is of no use, and has been removed.
            OSError: It has gone, or cannot be read.
        """
        try:
            return read_tensors(self._home / name, self.digest)
        except BadFileError as error:
            self.discard(name, str(error))
            raise

    def write(self, kept: CacheBlock, tensors: Tensors) -> list[str]:
        """Write a file, whole or not at all; returns what of this model was removed for it.

        It is not forced to the disk itself: what a loss of power tears is found by its sums.

        Raises:
            OSError: It cannot be written.
        """
        size = sum(len(tensor.data) for tensor in tensors if tensor is not None)
        gone = self._make_room(size + 2 * len(kept.tokens) + 4096)
        path = self._home / kept.name
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as stream:
                write_kept(stream, kept, self.digest, tensors)
                written = stream.tell()
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.nbytes += written
        self._since += written
        return gone

    def touch(self, names: list[str]) -> None:
        """Files were used; the first is removed last."""
        now = time.time_ns()
        for depth, name in enumerate(names):
            with contextlib.suppress(OSError):
                os.utime(self._home / name, ns=(now, now - 1000 * depth), follow_symlinks=False)

    def discard(self, name: str, reason: str) -> None:
        """Remove a file that is of no use."""
        self.removed += 1
        log.warning("cached prefix removed", actor="model", file=name, reason=reason)
        with contextlib.suppress(OSError):
            (self._home / name).unlink()

    def _make_room(self, size: int) -> list[str]:
        if size and self.nbytes + size <= self._limit and self._since <= self._limit // _SLACK:
            return []
        entries = sorted(self._entries())
        self.nbytes, self._since = sum(entry.size for entry in entries), 0
        gone: list[str] = []
        for entry in entries:
            if self.nbytes + size <= self._limit:
                break
            with contextlib.suppress(FileNotFoundError):
                entry.path.unlink()
                self.evictions += 1
            self.nbytes -= entry.size
            if entry.path.parent == self._home:
                gone.append(entry.path.name)
            else:
                with contextlib.suppress(OSError):  # it is not empty yet
                    entry.path.parent.rmdir()
        return gone

    def _entries(self) -> Iterator[_Entry]:
        """The files of all models."""
        old = time.time() - _ABANDONED
        with contextlib.suppress(FileNotFoundError), os.scandir(self._all) as models:
            for model in models:
                if not _MODEL.match(model.name) or not model.is_dir(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError), os.scandir(model.path) as files:
                    for file in files:
                        ours, temporary = NAME.match(file.name), _TEMPORARY.match(file.name)
                        if not (ours or temporary) or not _is_file(file):
                            continue
                        with contextlib.suppress(FileNotFoundError):
                            status = file.stat(follow_symlinks=False)
                            if temporary and status.st_mtime < old:
                                os.unlink(file.path)
                            elif ours:
                                yield _Entry(status.st_mtime_ns, status.st_size, Path(file.path))


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)
