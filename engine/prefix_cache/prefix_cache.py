"""Computed prefixes of prompts, for the next prompt that begins so: in memory, and perhaps on disk."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.prefix_cache.disk.index import DiskMatch
from greenroom.engine.prefix_cache.disk.offload import MIN_TOKENS
from greenroom.engine.prefix_cache.disk.tier import DiskTier
from greenroom.engine.prefix_cache.disk_reads import insert_from_disk
from greenroom.engine.prefix_cache.memory import kv_tensors
from greenroom.engine.prefix_cache.memory.tier import MemoryTier
from greenroom.engine.prefix_cache.memory.tree import pack
from greenroom.engine.prefix_cache.restoration import Restoration, RestorationSteps
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.statistics import PrefixCacheStatistics


@attrs.frozen
class CachedPrefix:
    """How much of a prompt is cached.

    Args:
        usable: Tokens that `restore` would fill in.
        shared: Tokens that it has in common with an earlier one; more than `usable` if that left no
            checkpoint there.
        on_disk: Whether files have to be read for that.
    """

    usable: int
    shared: int
    on_disk: bool = False


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
        return PrefixCacheStatistics(
            memory.nbytes, memory.buffers, memory.nodes, self._hits, self._misses, memory.evictions
        )

    def match(self, key: ModelKey, tokens: Sequence[int], stateful: bool) -> CachedPrefix:
        """Return how much of a prompt need not be computed; its last token always is.

        Args:
            stateful: Whether the model has recurrent or rotating layers.
        """
        packed = pack(tokens[:-1])
        match = self.memory.match(key, packed)
        usable = match.usable(stateful).length
        found = self._match_on_disk(key, packed, usable) or DiskMatch()
        more = found.usable(stateful)
        return CachedPrefix(max(usable, more), max(match.length, found.length), more - usable >= MIN_TOKENS)

    def restore(self, key: ModelKey, tokens: Sequence[int], cache: Cache, room: int = 0) -> Restoration:
        """Return what fills an empty plain cache with the longest cached prefix, a copy after the other.

        Args:
            room: Tokens for which the cache allocates memory at once, if it restores anything.
        """
        return Restoration(self._restore(key, pack(tokens[:-1]), cache, room))

    def insert(
        self,
        key: ModelKey,
        tokens: Sequence[int],
        cache: Cache,
        row: int | None,
        min_tokens: int = 1,
        *,
        unfinished: bool = False,
    ) -> bool:
        """Copy what a cache holds after exactly these tokens, as far as that is not cached yet.

        Args:
            row: Row of a batched cache; None for a plain one.
            min_tokens: New tokens for which it is worth while.
            unfinished: More of the same prompt will follow: it needs no states yet, and no file.

        Returns:
            Whether it is cached now.
        """
        if not self.memory.budget or not kv_tensors.can_cache(cache):
            return False
        self.memory.measure()
        tree = self.memory.tree(key)
        packed, length = pack(tokens), len(tokens)
        stateful = kv_tensors.is_stateful(cache)
        match = tree.match(packed)
        cached = match.length if unfinished else match.usable(stateful).length
        if length - cached < min_tokens:
            return False
        inserted = self.memory.insert(
            tree,
            packed,
            lambda start, stop: kv_tensors.copy_kv(cache, row, start, stop, length),
            (lambda: kv_tensors.copy_states(cache, row)) if stateful and not unfinished else None,
        )
        if inserted and self.disk is not None and key.adapter is None and not unfinished:
            self.disk.insert(tree, packed, stateful)
        return inserted

    def discard(self) -> None:
        """Release everything in memory, and of what is on disk all that may be wrong, after a crash."""
        if self.disk is not None:
            self.disk.drop()
        self.memory.clear()

    def close(self, seconds: float) -> None:
        """Write what is to be on disk, then release everything.

        Args:
            seconds: That writing may take.

        Raises:
            RuntimeError: The device has failed; what may be wrong is neither in memory then nor on disk.
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

    def _restore(self, key: ModelKey, packed: bytes, cache: Cache, room: int) -> RestorationSteps:
        stateful = kv_tensors.is_stateful(cache)
        usable = self.memory.match(key, packed).usable(stateful).length
        disk, on_disk = self.disk, self._match_on_disk(key, packed, usable)
        if disk is not None and on_disk is not None:
            if on_disk.usable(stateful) - usable >= MIN_TOKENS:
                prefix = packed[: on_disk.usable(stateful) * 4]
                yield from insert_from_disk(
                    disk, self.memory, self.memory.tree(key), prefix, on_disk, stateful
                )
            else:
                disk.misses += 1
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
        states = (last.states if stateful else None) or ()
        pinned = self.memory.pin(found.path)
        try:
            yield from kv_tensors.restore(cache, segments, states, found.length, max(room, found.length))
        finally:
            self.memory.unpin(pinned)
        return found.length
