"""Prefixes that survive a restart: what was inserted in memory, in files too."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import structlog

from greenroom.engine.device.device_errors import synchronize_streams
from greenroom.engine.prefix_cache.disk.block import BadFileError, CacheBlock, HostTensors
from greenroom.engine.prefix_cache.disk.disk_thread import DiskThread
from greenroom.engine.prefix_cache.disk.fingerprint import fingerprint
from greenroom.engine.prefix_cache.disk.folder import DiskFolder
from greenroom.engine.prefix_cache.disk.index import DiskIndex, DiskMatch
from greenroom.engine.prefix_cache.disk.offload import Offload
from greenroom.engine.prefix_cache.memory.tree import PrefixTree
from greenroom.schemas.settings import Settings

log = structlog.get_logger()

_IDLE_TIMEOUT = 0.01
"""Seconds that a step waits for the disk when nothing else is to be computed."""

_SCAN_TIMEOUT = 5.0
"""Seconds for which the first prompt waits for a slow disk to tell what is there."""


@attrs.frozen
class DiskStatistics:
    """Figures of one model's life, but for `nbytes`: all models' files as they were last counted.

    Args:
        files: Of this model, that can be read.
        written: Files that were written.
        skipped: Prefixes that were not, because the disk did not keep up.
        hits: Prompts of which more was on disk than in memory.
        misses: Prompts of which nothing more was.
        evictions: Files removed to make room.
        removed: Files removed because they were of no use.
    """

    nbytes: int
    files: int
    written: int
    skipped: int
    hits: int
    misses: int
    evictions: int
    removed: int


class DiskTier:
    """One model's files; on the model's thread, but for a thread that reads and one that writes.

    Args:
        root: The operator's folder; ours is made within.
        fingerprint: Of everything that a computed prefix depends on.
        limit: Bytes that the files of all models may take.
        floor: Bytes of the disk that are left to others.
    """

    def __init__(self, root: Path, fingerprint: str, limit: int, floor: int = 0) -> None:
        self.hits = self.misses = 0
        self._folder = DiskFolder(root, fingerprint, limit, floor)
        self._index = DiskIndex()
        self._reader, self._writer = DiskThread("prefix-reader"), DiskThread("prefix-writer")
        self._offload = Offload(self._folder, self._index, self._writer)
        self._stuck: Future[HostTensors | None] | None = None
        self._scan: Future[None] | None = self._writer.submit(self._read_folder)

    @property
    def pending(self) -> bool:
        """Whether `advance` has something to do."""
        return self._offload.pending

    def statistics(self) -> DiskStatistics:
        """Return figures for operators and tests."""
        folder, offload = self._folder, self._offload
        return DiskStatistics(
            folder.nbytes,
            len(self._index),
            offload.written,
            offload.skipped,
            self.hits,
            self.misses,
            folder.evictions,
            folder.removed,
        )

    def match(self, tokens: bytes) -> DiskMatch:
        """Return how far a packed prompt is on disk."""
        if self._scan is not None:
            try:
                self._scan.result(_SCAN_TIMEOUT)
            except TimeoutError:
                log.warning("prefix folder is slow", actor="model")
            self._scan = None
        return (
            DiskMatch() if self._stuck is not None and not self._stuck.done() else self._index.match(tokens)
        )

    def read(self, block: CacheBlock) -> Future[HostTensors | None]:
        """Have a file read, by the thread that reads; None if it turns out to be of no use."""
        return self._reader.submit(partial(self._read, block))

    def abandon(self, reading: Future[HostTensors | None]) -> None:
        """Have nothing match any more until a reading is done that takes too long."""
        self._stuck = reading
        log.warning("prefix folder is slow", actor="model")

    def record_use(self, match: DiskMatch) -> None:
        """Record that files were read, so that they are not evicted soon."""
        self.hits += 1
        self._writer.submit(partial(self._folder.touch, match.names()))
        log.debug("prefix read", actor="model", tokens=match.length, files=len(match.blocks))

    def insert(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Have a prefix written that memory holds; see `Offload.add`."""
        self._offload.add(tree, tokens, stateful)

    def advance(self, *, idle: bool) -> None:
        """Have written what is pending, as far as the disk keeps up.

        Raises:
            RuntimeError: The device has failed: what is to be written may be wrong.
        """
        if self._offload.pending:
            self._offload.advance(_IDLE_TIMEOUT if idle else 0.0, idle=idle)

    def drop(self) -> None:
        """Write nothing any more, and remove what may be wrong, since the device has failed."""
        self._offload.drop()

    def close(self, seconds: float) -> None:
        """Write what memory still holds.

        Args:
            seconds: That this may take, if the disk is slow.

        Raises:
            RuntimeError: The device has failed; what may be wrong is removed instead.
        """
        self._reader.close(0.0)
        try:
            synchronize_streams()
            self._offload.finish(seconds / 2)
        except RuntimeError:
            self.drop()
            raise
        finally:
            if not self._writer.close(seconds / 2):
                log.warning("prefixes not written in time", actor="model", seconds=seconds)

    def _read_folder(self) -> None:
        try:
            for block in self._folder.scan():
                self._index.insert(block)
            log.info("prefixes found", actor="model", files=len(self._index), bytes=self._folder.nbytes)
        except OSError as error:
            self._offload.disable()
            log.error("prefix folder cannot be used", actor="model", reason=str(error))

    def _read(self, block: CacheBlock) -> HostTensors | None:
        try:
            return self._folder.read(block.name)
        except (BadFileError, OSError):
            self._index.remove(block.name)
            return None


def open_disk_tier(folder: Path, settings: Settings, model: Any) -> DiskTier | None:
    """Return the tier of a model that is loaded; None if there is to be none, or cannot be any.

    Args:
        folder: The model's.
    """
    if settings.prefix_cache_dir is None:
        return None
    try:
        computed_by = fingerprint(folder, settings, model)
    except OSError as error:
        log.error("prefixes are not kept on disk", actor="model", reason=str(error))
        return None
    root = Path(settings.prefix_cache_dir).expanduser()
    limit, floor = settings.prefix_cache_disk_bytes, settings.prefix_cache_disk_free_bytes
    return DiskTier(root, computed_by, limit, floor)
