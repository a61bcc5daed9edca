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

from greenroom.engine.prefix_cache.disk.block import NAME, CacheBlock, HostTensors
from greenroom.engine.prefix_cache.disk.block_file import BadFileError, read_block, read_tensors, write_block

log = structlog.get_logger()

FOLDER_NAME = "greenroom-prefixes"
_MODEL = re.compile(r"^[0-9a-f]{32}$")
_TEMPORARY = re.compile(r"^(kv|state)-[0-9a-f]{32}\.\d+\.tmp$")
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
        fingerprint: Of the model, 32 hexadecimal digits.
        limit: Bytes that the files of all models may take.
    """

    def __init__(self, root: Path, fingerprint: str, limit: int) -> None:
        self.nbytes = self.evictions = self.removed = 0
        self._fingerprint = fingerprint
        self._all = root / FOLDER_NAME
        self._home = self._all / fingerprint
        self._limit = limit
        self._since_count = 0

    def scan(self) -> Iterator[CacheBlock]:
        """Yield everything of this model that can be used; remove what cannot.

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
                    yield read_block(self._home / name, self._fingerprint)
                except BadFileError as error:
                    self.discard(name, str(error))

    def read(self, name: str) -> HostTensors:
        """Return all that a file holds.

        Raises:
            BadFileError: It is of no use, and has been removed.
            OSError: It has gone, or cannot be read.
        """
        try:
            return read_tensors(self._home / name, self._fingerprint)
        except BadFileError as error:
            self.discard(name, str(error))
            raise

    def write(self, block: CacheBlock, tensors: HostTensors) -> list[str]:
        """Write a file, whole or not at all; return the names of this model's files that were evicted for it.

        It is not forced to the disk itself: what a loss of power tears is found by its checksum.

        Raises:
            OSError: It cannot be written.
        """
        size = sum(tensor.words.nbytes for tensor in tensors if tensor is not None)
        evicted = self._make_room(size + 2 * len(block.tokens) + 4096 + 256 * len(tensors))
        path = self._home / block.name
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            temporary.touch(mode=0o600)
            write_block(temporary, block, self._fingerprint, tensors)
            written = temporary.stat().st_size
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.nbytes += written
        self._since_count += written
        return evicted

    def touch(self, names: list[str]) -> None:
        """Record that files were used; the first is to be evicted last."""
        now = time.time_ns()
        for depth, name in enumerate(names):
            with contextlib.suppress(OSError):
                os.utime(self._home / name, ns=(now, now - 1000 * depth), follow_symlinks=False)

    def discard(self, name: str, reason: str) -> None:
        """Remove a file that is of no use, and log why."""
        self.removed += 1
        log.warning("cached prefix removed", actor="model", file=name, reason=reason)
        with contextlib.suppress(OSError):
            (self._home / name).unlink()

    def _make_room(self, size: int) -> list[str]:
        """Evict the least recently used files of all models; return the names of this model's."""
        if size and self.nbytes + size <= self._limit and self._since_count <= self._limit // _SLACK:
            return []
        entries = sorted(self._entries())
        self.nbytes, self._since_count = sum(entry.size for entry in entries), 0
        evicted: list[str] = []
        for entry in entries:
            if self.nbytes + size <= self._limit:
                break
            with contextlib.suppress(FileNotFoundError):
                entry.path.unlink()
                self.evictions += 1
            self.nbytes -= entry.size
            if entry.path.parent == self._home:
                evicted.append(entry.path.name)
            else:
                with contextlib.suppress(OSError):  # it is not empty yet
                    entry.path.parent.rmdir()
        return evicted

    def _entries(self) -> Iterator[_Entry]:
        """Yield the files of all models; remove what a killed process left half written."""
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
