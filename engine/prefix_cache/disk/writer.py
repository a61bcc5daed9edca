"""The thread that writes the disk tier's files. It is given plain bytes, and MLX is nothing to it."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import attrs
import structlog

from greenroom.engine.prefix_cache.disk.block import CacheBlock, Tensors
from greenroom.engine.prefix_cache.disk.folder import DiskFolder
from greenroom.engine.prefix_cache.disk.index import DiskIndex

log = structlog.get_logger()

_FAILURES = 3
"""Writes that may fail one after another before no more are tried."""


@attrs.frozen(eq=False)
class _Write:
    kept: CacheBlock
    tensors: Tensors
    nbytes: int
    path: list[str]


class DiskWriter:
    """Reads the folder, then writes what it is given, in order.

    Whoever has something to write reserves the bytes first. Where that is refused the disk is slower than the
    model, and nothing is copied for now.

    Args:
        capacity: Bytes that may wait.
    """

    def __init__(self, folder: DiskFolder, index: DiskIndex, capacity: int) -> None:
        self.written = 0
        self._folder = folder
        self._index = index
        self._capacity = capacity
        self._room = threading.Condition()
        self._reserved = 0
        self._failures = 0
        self._read = threading.Event()
        self._jobs: SimpleQueue[_Write | list[str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="greenroom-prefixes", daemon=True)
        self._thread.start()

    def ready(self, seconds: float) -> bool:
        """Wait until it is known what is there."""
        return self._read.wait(seconds)

    def takes(self, nbytes: int) -> bool:
        """Whether so many bytes can ever be written."""
        return self._failures < _FAILURES and nbytes <= self._capacity

    def reserve(self, nbytes: int, seconds: float) -> bool:
        """Whether so many bytes may be written soon; they must be, or given back.

        Args:
            seconds: To wait at most.
        """
        with self._room:
            if not self._room.wait_for(lambda: self._reserved + nbytes <= self._capacity, seconds):
                return False
            self._reserved += nbytes
            return True

    def give_back(self, nbytes: int) -> None:
        """Nothing more will be written of what was reserved."""
        with self._room:
            self._reserved -= nbytes
            self._room.notify_all()

    def write(self, kept: CacheBlock, tensors: Tensors, nbytes: int, path: list[str]) -> None:
        """Write a file that the index knows of.

        Args:
            nbytes: What was reserved for it.
            path: Names of the files that it is of no use without, and its own.
        """
        self._jobs.put(_Write(kept, tensors, nbytes, path))

    def touch(self, names: list[str]) -> None:
        """Note that files were used."""
        self._jobs.put(names)

    def close(self, seconds: float) -> bool:
        """End when everything is written; whether it is, in time."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for kept in self._folder.scan():
                self._index.add(kept, written=True)
            log.info("prefixes found", actor="model", files=len(self._index), bytes=self._folder.nbytes)
        except OSError as error:
            self._failures = _FAILURES
            log.error("prefix folder cannot be used", actor="model", reason=str(error))
        finally:
            self._read.set()
        while (job := self._jobs.get()) is not None:
            if isinstance(job, list):
                self._folder.touch(job)
            else:
                self._write(job)
            del job

    def _write(self, job: _Write) -> None:
        try:
            if self._failures < _FAILURES:
                for name in self._folder.write(job.kept, job.tensors):
                    self._index.remove(name)
                self._folder.touch(job.path)
                self._index.add(job.kept, written=True)
                self.written += 1
                self._failures = 0
                log.debug("prefix written", actor="model", file=job.kept.name, bytes=job.nbytes)
            else:
                self._index.remove(job.kept.name)
        except OSError as error:
            self._failures += 1
            self._index.remove(job.kept.name)
            log.warning("prefix not written", actor="model", reason=str(error))
            if self._failures == _FAILURES:
                log.error("no more prefixes are written", actor="model", reason=str(error))
        finally:
            self.give_back(job.nbytes)
