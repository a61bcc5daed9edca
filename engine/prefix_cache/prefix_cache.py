"""Computed prefixes of prompts, for the next prompt that begins so: in memory, and perhaps on disk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.prefix_cache.disk.block import HostTensors
from greenroom.engine.prefix_cache.disk.index import DiskMatch
from greenroom.engine.prefix_cache.disk.offload import MIN_TOKENS
from greenroom.engine.prefix_cache.disk.tier import DiskTier, to_arrays
from greenroom.engine.prefix_cache.memory import kv_tensors
from greenroom.engine.prefix_cache.memory.kv_tensors import LayerTensors
from greenroom.engine.prefix_cache.memory.tier import MemoryTier
from greenroom.engine.prefix_cache.memory.tree import PrefixTree, pack
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.statistics import PrefixCacheStatistics


@attrs.frozen
class CachedPrefix:
    """How much of a prompt is cached.

    Args:
        usable: Tokens that `restore` would fill in.
        shared: Tokens that it has in common with an earlier one; more than `usable` if that left no
            checkpoint there.
    """

    usable: int
    shared: int


class PrefixCache:
    """Prefixes in memory, and perhaps on disk, from where they come back to memory.

    An entry is copied out of a sequence's cache once and never written to. Where a model has recurrent or
    rotating layers, a prompt can continue only where an entry ends.

    Args:
        budget: Bytes of memory that it may hold; 0 caches nothing.
        disk: Where the prefixes of models without adapters are written as well.
    """

    def __init__(self, budget: int, disk: DiskTier | None = None) -> None:
        self.memory = MemoryTier(budget)
        self.disk = disk
        self._hits = self._misses = 0

    def statistics(self) -> PrefixCacheStatistics:
        """Return figures of its whole life."""
        memory = self.memory
        return PrefixCacheStatistics(memory.nbytes, memory.nodes, self._hits, self._misses, memory.evictions)

    def match(self, key: ModelKey, tokens: Sequence[int], stateful: bool) -> CachedPrefix:
        """Return how much of a prompt need not be computed; its last token always is.

        Args:
            stateful: Whether the model has recurrent or rotating layers.
        """
        packed = pack(tokens[:-1])
        match = self.memory.match(key, packed)
        usable = match.usable(stateful).length
        found = self._match_on_disk(key, packed, usable) or DiskMatch()
        return CachedPrefix(max(usable, found.usable(stateful)), max(match.length, found.length))

    def restore(self, key: ModelKey, tokens: Sequence[int], cache: Cache) -> int:
        """Fill an empty plain cache with the longest cached prefix; return its tokens."""
        packed = pack(tokens[:-1])
        stateful = kv_tensors.is_stateful(cache)
        self._read_from_disk(key, packed, stateful)
        found = self.memory.match(key, packed).usable(stateful)
        if not found.length:
            self._misses += 1
            return 0
        self._hits += 1
        *before, last = found.path
        self.memory.touch(found.path, last if stateful else None)
        segments = [node.kv for node in before]
        cut = found.length < last.end
        segments.append(kv_tensors.view_kv(last.kv, found.length - last.start) if cut else last.kv)
        kv_tensors.restore(cache, segments, (last.states if stateful else None) or (), found.length)
        return found.length

    def insert(
        self, key: ModelKey, tokens: Sequence[int], cache: Cache, row: int | None, min_tokens: int = 1
    ) -> bool:
        """Copy what a cache holds after exactly these tokens, as far as that is not cached yet.

        Args:
            row: Row of a batched cache; None for a plain one.
            min_tokens: New tokens for which it is worth while.

        Returns:
            Whether it is cached now.
        """
        if not self.memory.budget or not kv_tensors.can_cache(cache):
            return False
        self.memory.measure()
        tree = self.memory.tree(key)
        packed, length = pack(tokens), len(tokens)
        stateful = kv_tensors.is_stateful(cache)
        if length - tree.match(packed).usable(stateful).length < min_tokens:
            return False
        inserted = self.memory.insert(
            tree,
            packed,
            lambda start: kv_tensors.copy_kv(cache, row, start, length, length),
            (lambda: kv_tensors.copy_states(cache, row)) if stateful else None,
        )
        if inserted and self.disk is not None and key.adapter is None:
            self.disk.insert(tree, packed, stateful)
        return inserted

    def close(self, seconds: float) -> None:
        """Write what is to be on disk, then release everything.

        Args:
            seconds: That writing may take.
        """
        try:
            if self.disk is not None:
                self.disk.close(seconds)
        finally:
            self.memory.clear()

    def _match_on_disk(self, key: ModelKey, packed: bytes, usable: int) -> DiskMatch | None:
        """Return what is on disk; None if that cannot be more than the `usable` tokens in memory."""
        if self.disk is None or key.adapter is not None or len(packed) // 4 - usable < MIN_TOKENS:
            return None
        return self.disk.match(packed)

    def _read_from_disk(self, key: ModelKey, packed: bytes, stateful: bool) -> None:
        """Have in memory what is on disk of a prompt, where that is more."""
        usable = self.memory.match(key, packed).usable(stateful).length
        disk, found = self.disk, self._match_on_disk(key, packed, usable)
        if disk is None or found is None:
            return
        if found.usable(stateful) - usable < MIN_TOKENS:
            disk.misses += 1
            return
        tree = self.memory.tree(key)
        if self._insert_from_disk(disk, tree, packed[: found.usable(stateful) * 4], found, stateful):
            disk.record_use(found)

    def _insert_from_disk(
        self, disk: DiskTier, tree: PrefixTree, packed: bytes, found: DiskMatch, stateful: bool
    ) -> bool:
        """Insert all of these tokens from files; return whether there was room, and the files were good."""
        length = len(packed) // 4
        states = disk.read(found.states[-1]) if stateful else ()
        if states is None:
            return False
        for block, end in zip(found.blocks, found.ends, strict=True):
            stop = min(end, length)
            if stop <= max(block.start, tree.match(packed).length):
                continue
            kv = disk.read(block)
            if kv is None:
                return False
            copy_kv = partial(_part, kv, block.start, stop=stop)
            if not self.memory.insert(tree, packed[: stop * 4], copy_kv, None):
                return False
        if not stateful:
            return True
        whole = tree.match(packed).length == length  # not if there was no room for all of it at once
        return whole and self.memory.insert(tree, packed, lambda _: (), partial(to_arrays, states))


def _part(kv: HostTensors, first: int, start: int, stop: int) -> LayerTensors:
    """Return the arrays of some tokens of a prompt, from a file whose first token is `first`."""
    return to_arrays(kv, start - first, stop - first)
