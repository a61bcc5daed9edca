"""What one model's caches take, told to the account before they take it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence

from greenroom.engine.kv_cache.caches import Cache, preallocate
from greenroom.engine.kv_cache.growth import allocated_tokens
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.memory.account import MemoryAccount, Share
from greenroom.engine.prefix_cache.prefix_cache import PrefixCache
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.statistics import MemoryStatistics

_PATIENCE = 0.2
"""Seconds that another model's prefix cache gets to give way, before rows of this one do."""
_LOOK = 0.02


class KvMemory:
    """One model's caches: those that run, prompts that are promised room, and the prefix cache.

    Args:
        share: This model's share of the account; None is unlimited.
        footprint: What its caches take.
        prefixes: Gives way first.
    """

    def __init__(self, share: Share | None, footprint: CacheSizeModel, prefixes: PrefixCache | None) -> None:
        self.share = share or MemoryAccount().open()
        self.footprint = footprint
        self.margin = 0
        self._shapes = [
            [(slab.heads, slab.width, slab.dtype) for slab in layer.kv_tensors]
            if layer.window is None
            else []
            for layer in footprint.layers
        ]
        self._prefixes = prefixes
        self._promised: dict[int, int] = {}
        self._promises = 0
        self._groups = 0
        self._lent = 0
        if prefixes is not None:
            prefixes.memory.reserve = self.share.allow

    def statistics(self) -> MemoryStatistics:
        """Return what this model holds of the account."""
        return MemoryStatistics(self.share.weights, self.share.running, self.share.cached)

    def settle(self, groups: int, margin: int) -> None:
        """Say what the running caches take now that copies are done.

        Args:
            margin: Bytes of the largest layer, which must stay free: so much a copy takes meanwhile.
        """
        self._groups, self.margin, self._lent = groups, margin, 0
        if self.share.running != groups + self._promises:
            self.share.take(groups + self._promises)

    def lend(self, nbytes: int) -> bool:
        """Take bytes for a while, up to the next `settle`, if they are there."""
        if not self.share.take(self._groups + self._promises + self._lent + nbytes):
            return False
        self._lent += nbytes
        return True

    def lend_first(self, nbytes: int) -> bool:
        """As `lend`, with the prefix caches giving way: this model's, then those of the others."""
        return self._with_caches_giving_way(nbytes, lambda: self.lend(nbytes))

    def promise(self, row: Sequence, tokens: int, slice_tokens: int) -> bool:
        """Keep room for a prompt that is about to be computed, if it is there or can be made."""
        nbytes = self.footprint.nbytes(1, tokens, slice_tokens)
        before = self._groups + self._promises + self._lent

        def take() -> bool:
            with_margin = before + nbytes + self.margin_for(nbytes)
            return self.share.take(with_margin, new=True) and self.share.take(before + nbytes)

        if not self._with_caches_giving_way(nbytes + self.margin_for(nbytes), take):
            return False
        self._promised[row.serial] = nbytes
        self._promises += nbytes
        return True

    def widen(self, rows: GenericSequence[Sequence], nbytes: int) -> bool:
        """Have the promises to these rows come to so many bytes together, if that can be."""
        missing = nbytes - sum(self._promised.get(row.serial, 0) for row in rows)
        if missing > 0:
            if not self.share.take(self._groups + self._promises + self._lent + missing):
                return False
            self._promised[rows[0].serial] = self._promised.get(rows[0].serial, 0) + missing
            self._promises += missing
        return True

    def arrange(self, cache: Cache, tokens: int) -> None:
        """Give a prompt's cache all its room at once: growing step by step copies it at each of them."""
        preallocate(cache, self._shapes, allocated_tokens(tokens))

    def release(self, row: Sequence) -> None:
        """A promise is kept by now, or not needed any more; counts from the next `settle`."""
        self._promises -= self._promised.pop(row.serial, 0)

    def margin_for(self, nbytes: int) -> int:
        """Bytes that copies take meanwhile, once a cache of that size is among the others."""
        return max(self.margin, int(nbytes * self.footprint.largest_layer_share))

    def give_way(self) -> None:
        """Forget prefixes for another model that has asked for their memory."""
        asked, self.share.asked = self.share.asked, 0
        if asked and self._prefixes is not None:
            self._prefixes.memory.evict_to(max(0, self._prefixes.memory.nbytes - asked))

    def clear(self) -> None:
        """Give back everything."""
        self.share.close()

    def _with_caches_giving_way(self, nbytes: int, take: Callable[[], bool]) -> bool:
        if take():
            return True
        if self._prefixes is not None and self._prefixes.memory.nbytes:
            room = self.share.room() or 0
            used = self._groups + self._promises + self._lent
            self._prefixes.memory.evict_to(max(0, min(self._prefixes.memory.nbytes, room - used - nbytes)))
            if take():
                return True
        waited = 0.0
        while waited < _PATIENCE and self.share.ask_others(nbytes, _LOOK):
            waited += _LOOK
            if take():
                return True
        return False
