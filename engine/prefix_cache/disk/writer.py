"""The thread that writes the disk tier's files. It calls nothing of MLX: it reads arrays that are done."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

import attrs
import numpy as np
import structlog

from greenroom.engine.prefix_cache.disk.block import CacheBlock, HostTensor, HostTensors
from greenroom.engine.prefix_cache.disk.folder import DiskFolder
from greenroom.engine.prefix_cache.disk.index import DiskIndex

log = structlog.get_logger()

_MAX_FAILURES = 3
"""Writes that may fail one after another before no more are tried."""


@attrs.frozen(eq=False)
class BlockWrite:
    """A file to write.

    Args:
        pieces: What it holds, in pieces that follow each other on the third axis.
        path: Names of the files that it is of no use without, and its own.
        nbytes: Of all pieces.
    """

    block: CacheBlock
    pieces: tuple[HostTensors, ...]
    path: tuple[str, ...]
    nbytes: int


class DiskWriter:
    """Reads the folder, then writes what it is given, in order.

    Arrays are released by the thread that made them: what is written comes back to `release`.

    Args:
        capacity: Bytes that may wait.
    """

    def __init__(self, folder: DiskFolder, index: DiskIndex, capacity: int) -> None:
        self.written = 0
        self._folder = folder
        self._index = index
        self._capacity = capacity
        self._waiting_bytes = 0
        self._failures = 0
        self._scanned = threading.Event()
        self._jobs: SimpleQueue[BlockWrite | list[str] | None] = SimpleQueue()
        self._done: SimpleQueue[BlockWrite] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="greenroom-prefixes", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be written, or to be released."""
        return self._waiting_bytes

    def wait_until_scanned(self, seconds: float) -> bool:
        """Wait until it is known what is there."""
        return self._scanned.wait(seconds)

    def can_write(self, nbytes: int) -> bool:
        """Return whether so many bytes can ever be written."""
        return self._failures < _MAX_FAILURES and nbytes <= self._capacity

    def has_room(self, nbytes: int) -> bool:
        """Return whether so many bytes may be added now; if not, the disk is slower than the model."""
        return self._waiting_bytes + nbytes <= self._capacity

    def add(self, job: BlockWrite) -> None:
        """Have a file written that the index knows of."""
        self._waiting_bytes += job.nbytes
        self._jobs.put(job)

    def release(self, seconds: float) -> bool:
        """Release what has been written; if nothing has, wait for it. Return whether anything was."""
        released = False
        while self._waiting_bytes:
            try:
                self._waiting_bytes -= self._done.get(timeout=0 if released else seconds).nbytes
            except Empty:
                break
            released = True
        return released

    def touch(self, names: list[str]) -> None:
        """Record that files were used."""
        self._jobs.put(names)

    def close(self, seconds: float) -> bool:
        """End when everything is written; return whether it is, in time."""
        self._jobs.put(None)
        self._thread.join(seconds)
        self.release(0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for block in self._folder.scan():
                self._index.insert(block, written=True)
            log.info("prefixes found", actor="model", files=len(self._index), bytes=self._folder.nbytes)
        except OSError as error:
            self._failures = _MAX_FAILURES
            log.error("prefix folder cannot be used", actor="model", reason=str(error))
        finally:
            self._scanned.set()
        while (job := self._jobs.get()) is not None:
            if isinstance(job, list):
                self._folder.touch(job)
                continue
            try:
                self._write(job)
            except OSError as error:
                self._on_failure(job, error)
            self._done.put(job)
            del job

    def _write(self, job: BlockWrite) -> None:
        if self._failures >= _MAX_FAILURES:
            self._index.remove(job.block.name)
            return
        tensors = tuple(_concatenate(tensors) for tensors in zip(*job.pieces, strict=True))
        for name in self._folder.write(job.block, tensors):
            self._index.remove(name)
        self._folder.touch(list(job.path))
        self._index.insert(job.block, written=True)
        self.written += 1
        self._failures = 0
        log.debug("prefix written", actor="model", file=job.block.name, bytes=job.nbytes)

    def _on_failure(self, job: BlockWrite, error: OSError) -> None:
        self._failures += 1
        self._index.remove(job.block.name)
        log.warning("prefix not written", actor="model", reason=str(error))
        if self._failures == _MAX_FAILURES:
            log.error("no more prefixes are written", actor="model", reason=str(error))


def _concatenate(pieces: HostTensors) -> HostTensor | None:
    first = pieces[0]
    if first is None:
        return None
    words = [piece.words for piece in pieces if piece is not None]
    whole = np.concatenate(words, axis=2) if len(words) > 1 else np.ascontiguousarray(words[0])
    return HostTensor(first.dtype, whole)
