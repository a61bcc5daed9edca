"""Host tier of the prefix cache: prefixes that an unloaded model leaves in main memory for its next load."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import attrs

from greenroom.engine.catalog.model_files import fingerprint
from greenroom.engine.resources.device_errors import synchronize_streams
from greenroom.engine.resources.device_memory import available_memory, main_memory
from greenroom.engine.resources.held_memory import HeldMemory, HeldPiece
from greenroom.engine.text.prefix_cache.disk_files import CacheBlock, HostTensor, HostTensors, token_hash
from greenroom.engine.text.prefix_cache.kv_tensors import LayerTensors, arrays_of
from greenroom.engine.text.prefix_cache.memory_tier import MemoryTier, PrefixTree
from greenroom.engine.text.prefix_cache.offload import DiskIndex, DiskMatch
from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.settings import Settings

log = get_logger()

_LEFT_FREE = 16  # Divisor of the machine's memory that yields the bytes that nothing is held in


@attrs.frozen(eq=False)
class _Held:
    block: CacheBlock
    tensors: HostTensors


class HostTier:
    """Blocks of one model as plain bytes, which belong to no thread; used on the model's thread.

    A block that is restored whole moves back into MLX's memory, so it is never in memory twice.

    Args:
        stamp: Text that changes with everything that a cached prefix depends on.
        limit: Maximum bytes to hold.
    """

    is_on_disk = False

    def __init__(self, held: HeldMemory, owner: str, stamp: str, limit: int) -> None:
        self.hits = 0
        self._held = held
        self._owner = owner
        self._stamp = stamp
        self._limit = limit
        self._index = DiskIndex()
        for left in held.claim(owner, stamp):
            self._index.insert(left.block)

    @property
    def pending(self) -> bool:
        """True if `advance` has work to do; never."""
        return False

    def match(self, tokens: bytes, origin: bytes = b"") -> DiskMatch:
        return self._index.match(tokens, origin)

    def read(self, block: CacheBlock) -> Future[HostTensors | None]:
        """Return a block's tensors, already read; None if another need has dropped them."""
        found: _Held | None = self._held.find(self._owner, block.name)
        if found is None:
            self._index.remove(block.name)
        reading: Future[HostTensors | None] = Future()
        reading.set_result(None if found is None else found.tensors)
        return reading

    def move(self, block: CacheBlock, insert: Callable[[], bool]) -> bool:
        """Insert a whole block into the memory tier, and hold it no more; it stays if that fails."""
        piece, inserted = self._held.take(self._owner, block.name), False
        try:
            inserted = insert()
        finally:
            if piece is not None and not inserted:
                self._held.hold(self._owner, block.name, piece, self._stamp)
        return inserted

    def abandon(self, reading: Future[HostTensors | None]) -> None:
        """Do nothing: no read is slow."""

    def record_use(self, match: DiskMatch) -> None:
        """Count a prompt whose prefix came back."""
        self.hits += 1
        log.debug("prefix read", actor="model", tokens=match.length, blocks=len(match.blocks))

    def insert(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Do nothing: prefixes are copied when the model is unloaded."""

    def advance(self, *, idle: bool) -> None:
        """Do nothing."""

    def drop(self) -> None:
        """Drop all blocks after a failure, and hold none at the unload."""
        self._held.refuse(self._owner)

    def close(self, memory: MemoryTier, seconds: float) -> None:
        """Move the most recently used prefixes into host memory. `seconds`: timeout in seconds. Raises
        RuntimeError: the device has failed; all blocks are dropped.
        """
        try:
            synchronize_streams()
        except RuntimeError:
            self.drop()
            raise
        if not self._held.accepts(self._owner):
            return
        pieces, nbytes = list[HeldPiece](), 0
        deadline, floor = time.monotonic() + seconds, main_memory() // _LEFT_FREE
        for origin, tokens, node in memory.drain():
            free = available_memory()
            nbytes += node.kv_bytes + node.states_bytes
            if nbytes > self._limit or time.monotonic() > deadline:
                break
            if free is not None and free < floor + node.kv_bytes + node.states_bytes:
                break
            before = token_hash(tokens[: node.start * 4], origin)
            own = CacheBlock("kv", before, node.start, node.tokens)
            pieces.append(_copied(own, node.kv))
            if node.states is not None:
                states = CacheBlock("state", token_hash(tokens, origin), node.end)
                pieces.append(_copied(states, node.states))
        # The last to be dropped are those that were used last, and the beginnings of all prefixes.
        for piece in reversed(pieces):
            self._held.hold(self._owner, piece.content.block.name, piece, self._stamp)
        self._held.limit(self._owner, self._limit)
        if pieces:
            log.info("prefixes held", actor="model", blocks=len(pieces), bytes=sum(p.nbytes for p in pieces))


def open_host_tier(held: HeldMemory, folder: Path, settings: Settings) -> HostTier:
    """Open the host tier of a model that is about to be loaded; call it before its files are read."""
    stamp = f"{fingerprint(folder)} {settings.dtype} {settings.kv_bits}"
    return HostTier(held, str(folder), stamp, settings.prefix_cache_bytes)


def _copied(block: CacheBlock, arrays: LayerTensors) -> HeldPiece:
    tensors = tuple(None if array is None else _copy(HostTensor.view(array)) for array in arrays_of(arrays))
    nbytes = len(block.tokens) + sum(tensor.words.nbytes for tensor in tensors if tensor is not None)
    return HeldPiece(_Held(block, tensors), nbytes)


def _copy(view: HostTensor) -> HostTensor:
    return HostTensor(view.dtype, view.words.copy())


class StoredTier(Protocol):
    """Prefixes of one model outside MLX; used on the model's thread.

    Attributes:
        hits: Number of prompts with a longer prefix here than in memory.
        is_on_disk: True if prefixes are read from files.
    """

    is_on_disk: bool
    hits: int

    @property
    def pending(self) -> bool:
        """True if `advance` has work to do."""

    def match(self, tokens: bytes, origin: bytes = b"") -> DiskMatch:
        """Return the longest stored prefix of a prompt, given as packed token ids. `origin`: see
        `PrefixKey`.
        """

    def read(self, block: CacheBlock) -> Future[HostTensors | None]:
        """Start reading a block; the result is None if it is gone."""

    def move(self, block: CacheBlock, insert: Callable[[], bool]) -> bool:
        """Insert all of a block's tokens into the memory tier; return whether they fit.

        A tier in main memory then keeps the block no more.
        """

    def abandon(self, reading: Future[HostTensors | None]) -> None:
        """Disable matches until a slow read is done."""

    def record_use(self, match: DiskMatch) -> None:
        """Record the use of blocks."""

    def insert(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Record that a prefix is in the memory tier."""

    def advance(self, *, idle: bool) -> None:
        """Continue pending reads and writes of cache blocks, without blocking. Raises RuntimeError: the
        device has failed, so that the data may be wrong.
        """

    def drop(self) -> None:
        """Drop blocks that may be wrong after a failure, and store no more."""

    def close(self, memory: MemoryTier, seconds: float) -> None:
        """Store the prefixes that are worth keeping, before the memory tier is cleared. `seconds`: timeout in
        seconds. Raises RuntimeError: the device has failed; doubtful blocks are dropped instead.
        """
