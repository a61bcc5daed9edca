"""Disk tier of the prefix cache, whose entries survive a restart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.loading.devices import weight_type
from greenroom.engine.loading.read_weights import is_packed
from greenroom.engine.resources.device_errors import synchronize_streams
from greenroom.engine.text.prefix_cache.disk_files import (
    VERSION,
    BadFileError,
    CacheBlock,
    DiskFolder,
    HostTensors,
)
from greenroom.engine.text.prefix_cache.memory_tier import MemoryTier, PrefixTree
from greenroom.engine.text.prefix_cache.offload import DiskIndex, DiskMatch, DiskThread, Offload
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger()

_IDLE_TIMEOUT = 0.01  # Seconds that a step waits for the disk if there is nothing else to compute

_SCAN_TIMEOUT = 5.0  # Seconds that the first prompt waits for the scan of the folder


class DiskTier:
    """Files of one model; used on the model's thread, with one thread for reads and one for writes.

    Args:
        root: The operator's folder, in which ours is created.
        limit: Size limit of all models' files, in bytes.
        floor: Bytes to leave free on the disk.
    """

    is_on_disk = True

    def __init__(self, root: Path, fingerprint: str, limit: int, floor: int = 0) -> None:
        self.hits = 0
        self.folder = DiskFolder(root, fingerprint, limit, floor)
        self._index = DiskIndex()
        self._reader, self._writer = DiskThread("prefix-reader"), DiskThread("prefix-writer")
        self.offload = Offload(self.folder, self._index, self._writer)
        self._stuck: Future[HostTensors | None] | None = None
        self._scan: Future[None] | None = self._writer.submit(self._read_folder)

    @property
    def pending(self) -> bool:
        return self.offload.pending

    def match(self, tokens: bytes, origin: bytes = b"") -> DiskMatch:
        """Return the longest prefix of a prompt (packed token ids) that is on disk.
        `origin`: see `PrefixKey`.
        """
        if self._scan is not None:
            try:
                self._scan.result(_SCAN_TIMEOUT)
            except TimeoutError:
                log.warning("prefix folder is slow", actor="model")
            self._scan = None
        if self._stuck is not None and not self._stuck.done():
            return DiskMatch()
        return self._index.match(tokens, origin)

    def read(self, block: CacheBlock) -> Future[HostTensors | None]:
        return self._reader.submit(partial(self._read, block))

    def move(self, block: CacheBlock, insert: Callable[[], bool]) -> bool:
        """Insert a file's tokens into the memory tier; the file stays."""
        return insert()

    def abandon(self, reading: Future[HostTensors | None]) -> None:
        """Stop waiting for a slow read of a file; until it has ended, no prefix is looked up on the disk."""
        self._stuck = reading
        log.warning("prefix folder is slow", actor="model")

    def record_use(self, match: DiskMatch) -> None:
        """Record the use of files, so that they are not evicted soon."""
        self.hits += 1
        self._writer.submit(partial(self.folder.touch, match.names()))
        log.debug("prefix read", actor="model", tokens=match.length, files=len(match.blocks))

    def insert(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Queue a prefix in memory to be written; see `Offload.add`."""
        self.offload.add(tree, tokens, stateful)

    def advance(self, *, idle: bool) -> None:
        """Start pending writes, as far as the disk keeps up. Raises RuntimeError: the device has failed, so
        that the data may be wrong.
        """
        if self.offload.pending:
            self.offload.advance(_IDLE_TIMEOUT if idle else 0.0, idle=idle)

    def drop(self) -> None:
        """Stop writing and remove doubtful files after a device failure."""
        self.offload.drop()

    def close(self, memory: MemoryTier, seconds: float) -> None:
        """Write the remaining prefixes. `seconds`: timeout in seconds. Raises RuntimeError: the device has
        failed; doubtful files are removed instead.
        """
        self._reader.close(0.0)
        try:
            synchronize_streams()
            self.offload.finish(seconds / 2)
        except RuntimeError:
            self.drop()
            raise
        finally:
            if not self._writer.close(seconds / 2):
                log.warning("prefixes not written in time", actor="model", seconds=seconds)

    def _read_folder(self) -> None:
        try:
            for block in self.folder.scan():
                self._index.insert(block)
            log.info("prefixes found", actor="model", files=len(self._index), bytes=self.folder.nbytes)
        except OSError as error:
            self.offload.disable()
            log.error("prefix folder cannot be used", actor="model", reason=str(error))

    def _read(self, block: CacheBlock) -> HostTensors | None:
        try:
            return self.folder.read(block.name)
        except (BadFileError, OSError):
            self._index.remove(block.name)
            return None


def open_disk_tier(folder: Path, settings: Settings, model: Any) -> DiskTier | None:
    """Open the disk tier of a loaded model; return None if it is disabled or not possible."""
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


_TEXT_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model")
_TEMPLATES = "chat_template*"

_SAMPLES = 4096
_SAMPLE = 4096
"""Bytes per sample of a weight file; `_SAMPLES` evenly spaced ones are read, or all of a smaller file."""

_COMPUTED_BY = ("mlx-lm", "mlx-vlm")  # Libraries whose version may change the computed tensors


def fingerprint(folder: Path, settings: Settings, model: Any) -> str:
    """Return a model's fingerprint, 32 hexadecimal digits.

    Reading all weights would take as long as loading them, so only samples are read: training, merging and
    quantization change nearly all numbers of nearly all tensors. File sizes count; timestamps and paths do
    not, so a folder may be moved. Whoever patches single numbers in a large weight file by hand must clear
    the prefix folder.

    Raises:
        OSError: A file cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    dtype = weight_type(settings, is_packed(model))
    chosen = {"dtype": dtype, "kv_bits": str(settings.kv_bits)}
    layout = [type(layer).__name__ for layer in caches.flat_layers(caches.new_cache(model))]
    versions = [version(name) for name in _COMPUTED_BY]
    digest.update(json.dumps([VERSION, versions, chosen, layout]).encode())
    texts = [path for name in _TEXT_FILES if (path := folder / name).is_file()]
    texts += sorted(path for path in folder.glob(_TEMPLATES) if path.is_file())
    texts += sorted(folder.glob(f"{_TEMPLATES}/*.jinja"))
    for path in texts:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    for path in sorted(folder.glob("model*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as stream:
            for at in range(0, size, max(_SAMPLE, size // _SAMPLES)):
                stream.seek(at)
                digest.update(stream.read(_SAMPLE))
    return digest.hexdigest()
