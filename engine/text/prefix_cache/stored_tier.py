"""Contract of a tier below the prefix cache in memory: it keeps prefixes while their model is not loaded."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from greenroom.engine.text.prefix_cache.disk.block import CacheBlock, HostTensors
from greenroom.engine.text.prefix_cache.disk.index import DiskMatch
from greenroom.engine.text.prefix_cache.memory.tier import MemoryTier
from greenroom.engine.text.prefix_cache.memory.tree import PrefixTree


class StoredTier(Protocol):
    """Prefixes of one model outside MLX, for prompts without an adapter; used on the model's thread.

    Attributes:
        hits: Number of prompts with a longer prefix here than in memory.
        misses: Number of prompts without.
        is_on_disk: True if prefixes are read from files.
    """

    is_on_disk: bool
    hits: int
    misses: int

    @property
    def pending(self) -> bool:
        """True if `advance` has work to do."""

    def match(self, tokens: bytes) -> DiskMatch:
        """Return the longest stored prefix of a prompt, given as packed token ids."""

    def read(self, block: CacheBlock) -> Future[HostTensors | None]:
        """Start reading a block; the result is None if it is gone."""

    def move(self, block: CacheBlock, insert: Callable[[], bool]) -> bool:
        """Insert all of a block's tokens into the memory tier; return whether they fit.

        A tier in main memory then keeps the block no more.

        Args:
            insert: Function that inserts them, and returns whether they fit.
        """

    def abandon(self, reading: Future[HostTensors | None]) -> None:
        """Disable matches until a slow read is done."""

    def record_use(self, match: DiskMatch) -> None:
        """Record the use of blocks."""

    def insert(self, tree: PrefixTree, tokens: bytes, stateful: bool) -> None:
        """Record that a prefix is in the memory tier."""

    def advance(self, *, idle: bool) -> None:
        """Continue pending reads and writes of cache blocks, without blocking.

        Raises:
            RuntimeError: The device has failed, so that the data may be wrong.
        """

    def drop(self) -> None:
        """Drop blocks that may be wrong after a failure, and store no more."""

    def close(self, memory: MemoryTier, seconds: float) -> None:
        """Store the prefixes that are worth keeping, before the memory tier is cleared.

        Args:
            seconds: Timeout in seconds.

        Raises:
            RuntimeError: The device has failed; doubtful blocks are dropped instead.
        """
