"""Rows that decode together over one cache: our own step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.compaction import CompactionPolicy
from greenroom.engine.batch.decode_step import DecodeStep
from greenroom.engine.batch.grammar_masks import Refused
from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.batch.shape import Shape
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage
from greenroom.engine.kv_cache.usage import CacheUsageTracker
from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.speculation import Speculation


class Batch:
    """Rows over one cache; one that has left stays as None until the group is compacted.

    A step of the engine is `tidy`, `launch`, `read`, `sample`: the forward pass of the next token is under
    way while the host reads and handles the token before it, and so is drawing it where that needs no host.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, 1]`; returns logits `[rows, 1, vocabulary]`.
    """

    def __init__(self, model: Any, joining: PrefilledSequences) -> None:
        self.batchable = joining.batchable
        self._model = model
        self._shared = BatchCache(joining)
        self._decoding = DecodeStep(model, self._shared)
        self._extent = CacheUsageTracker()
        self._compaction = CompactionPolicy()
        self._heirs: list[Batch] = []

    @property
    def rows(self) -> list[Sequence | None]:
        """In the order of the cache."""
        return self._shared.rows

    @property
    def live(self) -> int:
        """Rows that go on."""
        return self._shared.live

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return self._shared.length

    @property
    def shape(self) -> Shape:
        """Rows that are computed, and the length of the longest."""
        return len(self._shared.rows), self._shared.length

    @property
    def size_in_bytes(self) -> int:
        """Bytes of its cache."""
        return self._shared.size_in_bytes

    @property
    def done(self) -> bool:
        """Nothing is left to compute or to read."""
        return not self._decoding.has_unread and self._shared.live == 0

    @property
    def verifies(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._decoding.verifies

    def extent(self, footprint: CacheSizeModel) -> CacheUsage:
        """What its cache takes."""
        return self._extent.usage(self._shared.layers, len(self._shared.rows), footprint)

    def grows(self, footprint: CacheSizeModel, ahead: int = 0) -> bool:
        """Whether the next step makes its cache larger, with so many drafted tokens."""
        shared = self._shared
        return self._extent.will_grow(shared.layers, len(shared.rows), footprint, ahead) and shared.live > 0

    def grow(self, ahead: int = 0) -> None:
        """Make room for the next steps, layer by layer, which takes less memory meanwhile than a step."""
        caches.grow(self._shared.layers, GROWTH_STEP, ahead)
        self._extent.invalidate()

    def take_copied(self) -> int:
        """Bytes of caches that were copied since the last call."""
        return self._shared.take_copied()

    def join(self, arrivals: GenericSequence[PrefilledSequences], *, thrifty: bool = False) -> None:
        """Take in new rows, all in one copy of the cache.

        Args:
            thrifty: Copy layer by layer, which takes longer and less memory.
        """
        self._settle()
        self.compact(thrifty=thrifty)
        self._shared.add(arrivals, thrifty=thrifty)
        self._changed()

    def absorb(self, other: Batch) -> None:
        """Take in all rows of another group, which is left with what it has yet to hand over."""
        other._settle()
        other.compact()
        self.join([other._shared.give_up()])
        other._changed()
        other._heirs = [self]

    def split(self, longest: int) -> Batch:
        """Move the rows up to that length, some but not all, to a group of their own."""
        self.compact()
        group = Batch(self._model, self._shared.take_out(longest))
        self.compact()
        self._heirs = [group]
        return group

    def leave(self, row: Sequence) -> None:
        """Stop computing for a row; a token of it that is under way is dropped."""
        self._settle()
        for index, member in enumerate(self.rows):
            if member is row:
                self._shared.let_go(index)
        for heir in self._heirs:
            heir.leave(row)

    def drop(self, row: Sequence) -> bool:
        """Stop computing for a row that will begin anew, and forget the token of it that is under way."""
        self._settle()
        if row not in self.rows:
            return False
        self._shared.forget(row)
        self._changed()
        self._decoding.forget(row)
        return True

    def tidy(self, lend: Callable[[int], bool]) -> None:
        """Cut out rows that have left, once they cost more than a copy of the cache.

        Args:
            lend: Whether there are so many bytes for the copy.
        """
        live, rows = self._shared.live, len(self._shared.rows)
        worth_it = 0 < live < rows and self._compaction.should_compact(rows, live)
        if worth_it and lend(self.size_in_bytes * live // rows):
            self.compact()

    def compact(self, *, thrifty: bool = False) -> None:
        """Cut out rows that have left."""
        if self._shared.cut_out(thrifty=thrifty):
            self._changed()

    def launch(self, speculation: Speculation | None = None) -> None:
        """Start the forward pass for all rows; its input may still be under way itself.

        Args:
            speculation: May add drafted tokens to the input of a row that is alone.
        """
        self._settle()
        self._extent.advance(self._decoding.launch(speculation))

    def read(self) -> Iterator[tuple[Sequence, int]]:
        """Tokens that the last step drew, with their rows: the only wait of a step."""
        return self._decoding.read()

    def sample(self) -> Refused:
        """Have the next tokens drawn from the logits of `launch`; after its last one a row leaves.

        Returns:
            Rows that cannot go on; their tokens must not be read.
        """
        self._heirs = []
        return self._decoding.sample()

    def _settle(self) -> None:
        """Wait for tokens that are held against drafted ones."""
        if self._decoding.settle():
            self._extent.invalidate()

    def _changed(self) -> None:
        """What was measured of the cache, or made for the rows in it, no longer holds."""
        self._decoding.rows_changed()
        self._extent.invalidate()
