"""Prefixes that survive a restart: what was kept in memory, in files too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import structlog

from greenroom.engine.prefix_cache.disk.block import CacheBlock, Tensors
from greenroom.engine.prefix_cache.disk.block_file import BadFileError
from greenroom.engine.prefix_cache.disk.fingerprint import fingerprint
from greenroom.engine.prefix_cache.disk.folder import DiskFolder
from greenroom.engine.prefix_cache.disk.index import DiskIndex, Found, Part
from greenroom.engine.prefix_cache.disk.offload import Offload, to_array
from greenroom.engine.prefix_cache.disk.writer import DiskWriter
from greenroom.engine.prefix_cache.memory.kv_tensors import LayerTensors
from greenroom.engine.prefix_cache.memory.tree import PrefixTree
from greenroom.schemas.settings import Settings

log = structlog.get_logger()

_QUEUE = 256 * 1024 * 1024
"""Bytes that may wait for the disk."""

_RUNNING = 4 * 1024 * 1024
_IDLE = 64 * 1024 * 1024
"""Bytes that are copied out in a step, beside running rows and without."""

_START = 5.0
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
    """One model's files; on the model's thread, but for the writing.

    Args:
        root: The operator's folder; ours are made within.
        digest: Of everything that what is kept depends on.
        limit: Bytes that the files of all models may take.
        queue: Bytes that may wait to be written.
    """

    def __init__(self, root: Path, digest: str, limit: int, queue: int = _QUEUE) -> None:
        self.hits = self.misses = 0
        self._patience = _START
        self._folder = DiskFolder(root, digest, limit)
        self._index = DiskIndex()
        self._writer = DiskWriter(self._folder, self._index, min(queue, limit * 9 // 10))
        self._copying = Offload(self._index, self._writer)

    @property
    def pending(self) -> bool:
        """Whether `advance` has something to do."""
        return self._copying.pending

    def statistics(self) -> DiskStatistics:
        """Figures for operators and tests."""
        folder = self._folder
        return DiskStatistics(
            folder.nbytes,
            len(self._index),
            self._writer.written,
            self._copying.skipped,
            self.hits,
            self.misses,
            folder.evictions,
            folder.removed,
        )

    def find(self, tokens: bytes) -> Found:
        """How far a packed prompt is on disk."""
        if self._patience:
            self._writer.ready(self._patience)
            self._patience = 0.0
        return self._index.find(tokens)

    def read(self, kept: CacheBlock) -> Tensors | None:
        """What a file holds; None if it turns out to be of no use."""
        try:
            return self._folder.read(kept.name)
        except (BadFileError, OSError):
            self._index.remove(kept.name)
            return None

    def used(self, found: Found) -> None:
        """Files were read, and are not to be removed soon."""
        self.hits += 1
        self._writer.touch(found.names())
        log.debug("prefix read", actor="model", tokens=found.length, files=len(found.parts))

    def keep(self, tree: PrefixTree, tokens: bytes, states: bool) -> None:
        """Have a prefix written that memory keeps now; see `CopyingOut.wish`."""
        self._copying.wish(tree, tokens, states)

    def advance(self, *, idle: bool) -> None:
        """Copy a little of what is to be written."""
        if self._copying.pending:
            self._copying.advance(_IDLE if idle else _RUNNING, 0.01 if idle else 0.0)

    def close(self, seconds: float) -> None:
        """Write what memory still keeps.

        Args:
            seconds: That this may take, if the disk is slow.
        """
        self._copying.finish(seconds / 2)
        if not self._writer.close(seconds / 2):
            log.warning("prefixes not written in time", actor="model", seconds=seconds)


def arrays_of(tensors: Tensors, part: Part | None = None, start: int = 0, stop: int = 0) -> LayerTensors:
    """Arrays from what was read.

    Args:
        part: Whose tokens from `start` to `stop` of the whole prompt are wanted; None for states.
    """
    if part is None:
        return tuple(None if tensor is None else to_array(tensor) for tensor in tensors)
    first = part.kept.start
    return tuple(
        None if tensor is None else to_array(tensor, start - first, stop - first) for tensor in tensors
    )


def open_disk_tier(folder: Path, settings: Settings, model: Any) -> DiskTier | None:
    """The files of a model that is loaded; None if there are to be none, or cannot be any.

    Args:
        folder: The model's.
    """
    if settings.prefix_cache_dir is None:
        return None
    try:
        digest = fingerprint(folder, settings, model)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error("prefixes are not kept on disk", actor="model", reason=str(error))
        return None
    root = Path(settings.prefix_cache_dir).expanduser()
    return DiskTier(root, digest, settings.prefix_cache_disk_bytes)
