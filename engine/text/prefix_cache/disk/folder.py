"""Folder of a model's disk tier files, within a size limit shared by all models.

Other processes may use the same folder: files appear atomically (renamed from a temporary name), and a
missing file is no error. Only regular files with names that this module creates, in folders that it creates,
are ever removed; these include partial files of a killed process.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from greenroom.engine.text.prefix_cache.disk.block import (
    NAME,
    BadFileError,
    CacheBlock,
    HostTensors,
    read_block,
    read_tensors,
    write_block,
)
from greenroom.schemas.logs import get_logger

log = get_logger()

FOLDER_NAME = "greenroom-prefixes"
_MODEL = re.compile(r"^[0-9a-f]{32}$")
_OURS = re.compile(rf"{NAME.pattern}|^(kv|state)-[0-9a-f]{{32}}\.\d+\.tmp$")

_SLACK = 16
"""Divisor of the limit: files are listed after that share of it was written, and evicted until that share is
free.
"""


class DiskIsLowError(Exception):
    """Error if writing a file would leave too little free disk space; nothing was written.

    Args:
        evicted: Names of this model's files that were evicted in vain.
    """

    def __init__(self, evicted: list[str]) -> None:
        super().__init__("the disk has too little room left")
        self.evicted = evicted


def free_bytes(folder: Path) -> int:
    """Return the free bytes on a folder's disk that users may use."""
    return shutil.disk_usage(folder).free


class DiskFolder:
    """Files of one model; all methods but `read` belong to one thread.

    Args:
        root: The operator's folder.
        fingerprint: Fingerprint of the model, 32 hexadecimal digits.
        limit: Size limit of all models' files, in bytes.
        floor: Bytes to leave free on the disk; 0 disables the check.
        free: Function that returns the free bytes of a folder's disk.
    """

    def __init__(
        self,
        root: Path,
        fingerprint: str,
        limit: int,
        floor: int = 0,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.nbytes = self.evictions = self.removed = 0
        self.max_file = limit - limit // _SLACK
        self._fingerprint = fingerprint
        self._all = root / FOLDER_NAME
        self._home = self._all / fingerprint
        self._limit = limit
        self._floor = floor
        self._free = free
        self._unlisted = limit

    def scan(self) -> Iterator[CacheBlock]:
        """Yield the descriptions of all usable files of this model; remove unusable ones.

        Raises:
            OSError: The folder cannot be created.
        """
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(0)
        for _, _, path in self._files():
            if path.parent == self._home and NAME.match(path.name):
                with contextlib.suppress(OSError):
                    try:
                        yield read_block(path, self._fingerprint)
                    except BadFileError as error:
                        self._discard(path, error)

    def read(self, name: str) -> HostTensors:
        """Return a file's tensors.

        Raises:
            BadFileError: The file is unusable and has been removed.
            OSError: The file is missing or cannot be read.
        """
        try:
            return read_tensors(self._home / name, self._fingerprint)
        except BadFileError as error:
            self._discard(self._home / name, error)
            raise

    def write(self, block: CacheBlock, tensors: HostTensors) -> list[str]:
        """Write a file atomically; return the names of this model's files that were evicted for it.

        The file is not synced to disk: the checksum detects damage by a power loss.

        Raises:
            DiskIsLowError: The disk is nearly full; the file was not written.
            OSError: The file cannot be written.
        """
        size = sum(tensor.words.nbytes for tensor in tensors if tensor is not None)
        size += 2 * len(block.tokens) + 4096 + 256 * len(tensors)
        path = self._home / block.name
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        evicted = self._make_room(size)
        if self._lacking(size):
            raise DiskIsLowError(evicted)
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
        return evicted

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""
        for name in names:
            path = self._home / name
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                self.nbytes -= size

    def touch(self, names: list[str]) -> None:
        """Mark files as recently used, the first most recently."""
        now = time.time_ns()
        for depth, name in enumerate(names):
            with contextlib.suppress(OSError):
                os.utime(self._home / name, ns=(now, now - 1000 * depth), follow_symlinks=False)

    def _discard(self, path: Path, reason: Exception) -> None:
        """Remove an unusable file and log the reason."""
        self.removed += 1
        log.warning("cached prefix removed", actor="model", file=path.name, reason=str(reason))
        with contextlib.suppress(OSError):
            path.unlink()

    def _make_room(self, size: int) -> list[str]:
        """Evict the least recently used files of all models; return the names of this model's."""
        self._unlisted += size
        lacking = self._lacking(size)
        if self._unlisted <= self._limit // _SLACK and not lacking:
            return []
        files = sorted(self._files())
        self.nbytes, self._unlisted = sum(nbytes for _, nbytes, _ in files), 0
        evicted: list[str] = []
        for _, nbytes, path in files:
            if self.nbytes + size <= self.max_file and lacking <= 0:
                break
            lacking -= nbytes
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                self.evictions += 1
            self.nbytes -= nbytes
            if path.parent == self._home:
                evicted.append(path.name)
            else:
                with contextlib.suppress(OSError):  # not empty yet
                    path.parent.rmdir()
        return evicted

    def _lacking(self, size: int) -> int:
        """Return the bytes missing on the disk for a file of this size; 0 if there is enough space."""
        return max(0, size + self._floor - self._free(self._home)) if self._floor else 0

    def _files(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the time of last use, size and path of all models' files."""
        for model in _listed(self._all):
            if _MODEL.match(model.name) and model.is_dir(follow_symlinks=False):
                for file in _listed(model.path):
                    if _OURS.match(file.name) and file.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            status = file.stat(follow_symlinks=False)
                            yield status.st_mtime_ns, status.st_size, Path(file.path)


def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []
