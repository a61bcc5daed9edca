"""Prefix cache: computed prefixes of prompts for reuse, in memory and in a tier that outlasts the model."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.text.prefix_cache.disk.index import DiskMatch
from greenroom.engine.text.prefix_cache.disk.offload import MIN_TOKENS
from greenroom.engine.text.prefix_cache.memory import kv_tensors
from greenroom.engine.text.prefix_cache.memory.tier import MemoryTier
from greenroom.engine.text.prefix_cache.memory.tree import pack
from greenroom.engine.text.prefix_cache.restoration import Restoration, RestorationSteps, Restored
from greenroom.engine.text.prefix_cache.stored_reads import insert_stored
from greenroom.engine.text.prefix_cache.stored_tier import StoredTier
from greenroom.engine.text.sequences.prefix_key import PrefixKey
from greenroom.schemas.events.statistics import PrefixCacheStatistics


@attrs.frozen
class CachedPrefix:
    """Cached part of a prompt.

    Args:
        usable: Number of tokens that `restore` would fill in.
        shared: Number of tokens in common with an earlier prompt; more than `usable` if there is no
            checkpoint at that point.
        stored: Whether the tier below memory must be read to restore it.
    """

    usable: int
    shared: int
    stored: bool = False


class PrefixCache:
    """Prefixes in memory, and optionally in a stored tier, from where they are restored via memory.

    An entry is copied out of a sequence's cache once and never written to. If a model has recurrent or
    rotating layers, a prompt can continue only at the end of an entry.

    Args:
        budget: Maximum bytes of memory to hold; 0 disables the cache.
        stored: Tier on disk or in host memory, for prefixes without an adapter or a salt; None for none.
    """

    def __init__(self, budget: int, stored: StoredTier | None = None) -> None:
        self.memory = MemoryTier(budget)
        self.stored = stored
        self._hits = self._misses = 0

    def statistics(self) -> PrefixCacheStatistics:
        """Return figures since the cache was created."""
        memory = self.memory
        return PrefixCacheStatistics(
            memory.nbytes, memory.buffers, memory.nodes, self._hits, self._misses, memory.evictions
        )

    def match(self, key: PrefixKey, tokens: Sequence[int], stateful: bool) -> CachedPrefix:
        """Return the cached part of a prompt; its last token is never included.

        Args:
            stateful: Whether the model has recurrent or rotating layers.
        """
        packed = pack(tokens[:-1])
        match = self.memory.match(key, packed)
        usable = match.usable(stateful).length
        found = self._match_stored(key, packed, usable) or DiskMatch()
        more = found.usable(stateful)
        return CachedPrefix(max(usable, more), max(match.length, found.length), more - usable >= MIN_TOKENS)

    def restore(self, key: PrefixKey, tokens: Sequence[int], cache: Cache, room: int = 0) -> Restoration:
        """Return a restoration that fills an empty unbatched cache with the longest cached prefix.

        Args:
            room: Number of tokens to allocate memory for, if anything is restored.
        """
        return Restoration(self._restore(key, pack(tokens[:-1]), cache, room))

    def insert(
        self,
        key: PrefixKey,
        tokens: Sequence[int],
        cache: Cache,
        row: int | None,
        min_tokens: int = 1,
        *,
        unfinished: bool = False,
        continued: bool = False,
    ) -> bool:
        """Copy a cache that holds exactly these tokens, as far as they are not cached yet.

        Args:
            row: Row of a batched cache; None for an unbatched one.
            min_tokens: Minimum number of new tokens worth a copy.
            unfinished: Whether more of the same prompt follows, so that neither states nor files are needed
                yet.
            continued: Whether the prompt continues an earlier one.

        Returns:
            Whether the prefix is cached now.
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
            continued=continued,
        )
        if inserted and self.stored is not None and key.is_common and not unfinished:
            self.stored.insert(tree, packed, stateful)
        return inserted

    def discard(self) -> None:
        """Release all memory after a crash, and drop what is stored and may be wrong."""
        if self.stored is not None:
            self.stored.drop()
        self.memory.clear()

    def close(self, seconds: float) -> None:
        """Store prefixes for the next load, and release everything.

        Args:
            seconds: Timeout for storing, in seconds.

        Raises:
            RuntimeError: The device has failed; doubtful prefixes are discarded everywhere.
        """
        try:
            if self.stored is not None:
                self.stored.close(self.memory, seconds)
        finally:
            self.memory.clear()

    def _match_stored(self, key: PrefixKey, packed: bytes, usable: int) -> DiskMatch | None:
        """Return the match in the stored tier; None if it cannot exceed the `usable` tokens in memory."""
        if self.stored is None or not key.is_common or len(packed) // 4 - usable < MIN_TOKENS:
            return None
        return self.stored.match(packed)

    def _restore(self, key: PrefixKey, packed: bytes, cache: Cache, room: int) -> RestorationSteps:
        stateful = kv_tensors.is_stateful(cache)
        usable = self.memory.match(key, packed).usable(stateful).length
        tier, match = self.stored, self._match_stored(key, packed, usable)
        if tier is not None and match is not None:
            if match.usable(stateful) - usable >= MIN_TOKENS:
                prefix = packed[: match.usable(stateful) * 4]
                yield from insert_stored(tier, self.memory, self.memory.tree(key), prefix, match, stateful)
            else:
                tier.misses += 1
        found = self.memory.match(key, packed).usable(stateful)
        if not found.length:
            self._misses += 1
            return Restored()
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
        stored = max(0, found.length - usable)
        return Restored(found.length, stored if tier is not None and tier.is_on_disk else 0)
