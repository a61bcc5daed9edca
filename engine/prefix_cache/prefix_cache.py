"""Computed beginnings of prompts, kept for the next prompt that begins so."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.prefix_cache.disk.index import Found
from greenroom.engine.prefix_cache.disk.offload import LEAST
from greenroom.engine.prefix_cache.disk.tier import DiskTier, arrays_of
from greenroom.engine.prefix_cache.memory import kv_tensors
from greenroom.engine.prefix_cache.memory.tier import MemoryTier
from greenroom.engine.prefix_cache.memory.tree import PrefixTree, pack
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.statistics import PrefixCacheStatistics


@attrs.frozen
class CachedPrefix:
    """What is known of a prompt.

    Args:
        usable: Tokens that `restore` would fill in.
        shared: Tokens that it has in common with an earlier one; more than `usable` if nobody stopped there.
    """

    usable: int
    shared: int


class PrefixCache:
    """What is kept of prompts: in memory, and perhaps on disk, from where it comes back to memory.

    Everything kept is copied out of the row's cache once and never written to. Where a model's cache cannot
    be cut to fewer tokens, a prompt can continue only where an earlier one was stored.

    Args:
        budget: Bytes of memory that it may hold; 0 keeps nothing.
        disk: Where the prefixes of models without adapters are kept as well.
    """

    def __init__(self, budget: int, disk: DiskTier | None = None) -> None:
        self.memory = MemoryTier(budget)
        self.disk = disk
        self._hits = self._misses = 0

    def statistics(self) -> PrefixCacheStatistics:
        """Figures of its whole life."""
        memory = self.memory
        return PrefixCacheStatistics(memory.nbytes, memory.nodes, self._hits, self._misses, memory.evictions)

    def match(self, key: ModelKey, tokens: Sequence[int], stateful: bool) -> CachedPrefix:
        """How much of a prompt need not be computed; its last token always is.

        Args:
            states: Whether the model has layers that cannot be cut.
        """
        packed = pack(tokens[:-1])
        match = self.memory.match(key, packed)
        usable = match.usable(stateful).length
        found = self._on_disk(key, packed, usable) or Found()
        return CachedPrefix(max(usable, found.usable(stateful)), max(match.length, found.length))

    def restore(self, key: ModelKey, tokens: Sequence[int], cache: Cache) -> int:
        """Fill an empty plain cache with the longest known beginning; returns its tokens."""
        packed = pack(tokens[:-1])
        states = kv_tensors.is_stateful(cache)
        self._read_from_disk(key, packed, states)
        found = self.memory.match(key, packed).usable(states)
        if not found.length:
            self._misses += 1
            return 0
        self._hits += 1
        *before, last = found.path
        self.memory.touch(found.path, last if states else None)
        segments = [node.kv for node in before]
        cut = found.length < last.end
        segments.append(kv_tensors.view_kv(last.kv, found.length - last.start) if cut else last.kv)
        kv_tensors.restore(cache, segments, (last.states if states else None) or (), found.length)
        return found.length

    def insert(
        self, key: ModelKey, tokens: Sequence[int], cache: Cache, row: int | None, min_tokens: int = 1
    ) -> bool:
        """Keep what a cache holds after exactly these tokens; copies only what is not known yet.

        Args:
            row: Row of a batched cache; None for a plain one.
            least: New tokens for which it is worth while.
        """
        if not self.memory.budget or not kv_tensors.can_cache(cache):
            return False
        self.memory.measure()
        tree = self.memory.tree(key)
        packed, length = pack(tokens), len(tokens)
        states = kv_tensors.is_stateful(cache)
        if length - tree.match(packed).usable(states).length < min_tokens:
            return False
        held = self.memory.insert(
            tree,
            packed,
            lambda start: kv_tensors.copy_kv(cache, row, start, length, length),
            (lambda: kv_tensors.copy_states(cache, row)) if states else None,
        )
        if held and self.disk is not None and key.adapter is None:
            self.disk.keep(tree, packed, states)
        return held

    def close(self, seconds: float) -> None:
        """Write what is to be on disk, then forget everything.

        Args:
            seconds: That writing may take.
        """
        try:
            if self.disk is not None:
                self.disk.close(seconds)
        finally:
            self.memory.clear()

    def _on_disk(self, key: ModelKey, packed: bytes, usable: int) -> Found | None:
        """What is on disk; None if that cannot be more than what memory knows."""
        if self.disk is None or key.adapter is not None or len(packed) // 4 - usable < LEAST:
            return None
        return self.disk.find(packed)

    def _read_from_disk(self, key: ModelKey, packed: bytes, states: bool) -> None:
        """Have in memory what is on disk of a prompt, where that is more."""
        usable = self.memory.match(key, packed).usable(states).length
        disk, found = self.disk, self._on_disk(key, packed, usable)
        if disk is None or found is None:
            return
        if found.usable(states) - usable < LEAST:
            disk.misses += 1
            return
        tree = self.memory.tree(key)
        if self._read_parts(disk, tree, packed[: found.usable(states) * 4], found, states):
            disk.used(found)

    def _read_parts(
        self, disk: DiskTier, tree: PrefixTree, packed: bytes, found: Found, states: bool
    ) -> bool:
        """Have all of these tokens in memory, from files; whether there was room, and the files were good."""
        length = len(packed) // 4
        after = disk.read(found.states[-1]) if states else ()
        if after is None:
            return False
        for part in found.parts:
            stop = min(part.stop, length)
            if stop <= max(part.kept.start, tree.match(packed).length):
                continue
            spans = disk.read(part.kept)
            if spans is None:
                return False
            cut = partial(arrays_of, spans, part, stop=stop)
            if not self.memory.insert(tree, packed[: stop * 4], cut, None):
                return False
        if not states:
            return True
        whole = tree.match(packed).length == length  # not if there was no room for all of it at once
        return whole and self.memory.insert(tree, packed, lambda _: (), partial(arrays_of, after))
