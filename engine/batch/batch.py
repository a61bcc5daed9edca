"""Rows that decode together over one cache: our own step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.compaction import CompactionPolicy
from greenroom.engine.batch.decode_step import DecodeStep
from greenroom.engine.batch.grammar_masks import GrammarFailures
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

    def __init__(self, model: Any, prefilled: PrefilledSequences) -> None:
        self.batchable = prefilled.batchable
        self._model = model
        self._cache = BatchCache(prefilled)
        self._decode_step = DecodeStep(model, self._cache)
        self._usage = CacheUsageTracker()
        self._compaction = CompactionPolicy()
        self._successors: list[Batch] = []

    @property
    def sequences(self) -> list[Sequence | None]:
        """In the order of the cache."""
        return self._cache.sequences

    @property
    def active(self) -> int:
        """Rows that go on."""
        return self._cache.active

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return self._cache.length

    @property
    def shape(self) -> Shape:
        """Rows that are computed, and the length of the longest."""
        return len(self._cache.sequences), self._cache.length

    @property
    def size_in_bytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.size_in_bytes

    @property
    def is_done(self) -> bool:
        """Nothing is left to compute or to read."""
        return not self._decode_step.has_pending and self._cache.active == 0

    @property
    def is_verifying(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._decode_step.is_verifying

    def cache_usage(self, footprint: CacheSizeModel) -> CacheUsage:
        """What its cache takes."""
        return self._usage.usage(self._cache.layers, len(self._cache.sequences), footprint)

    def grows_next_step(self, footprint: CacheSizeModel, ahead: int = 0) -> bool:
        """Whether the next step makes its cache larger, with so many drafted tokens."""
        cache = self._cache
        if not cache.active:
            return False
        return self._usage.will_grow(cache.layers, len(cache.sequences), footprint, ahead)

    def grow(self, ahead: int = 0) -> None:
        """Make room for the next steps, layer by layer, which takes less memory meanwhile than a step."""
        caches.grow(self._cache.layers, GROWTH_STEP, ahead)
        self._usage.invalidate()

    def take_copied_bytes(self) -> int:
        """Bytes of caches that were copied since the last call."""
        return self._cache.take_copied_bytes()

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, thrifty: bool = False) -> None:
        """Take in new rows, all in one copy of the cache.

        Args:
            thrifty: Copy layer by layer, which takes longer and less memory.
        """
        self._finish_verification()
        self.compact(thrifty=thrifty)
        self._cache.add(prefilled, thrifty=thrifty)
        self._invalidate()

    def merge(self, other: Batch) -> None:
        """Take in all rows of another group, which is left with what it has yet to hand over."""
        other._finish_verification()
        other.compact()
        self.add([other._cache.detach()])
        other._invalidate()
        other._successors = [self]

    def split(self, longest: int) -> Batch:
        """Move the rows up to that length, some but not all, to a group of their own."""
        self.compact()
        group = Batch(self._model, self._cache.split_off(longest))
        self.compact()
        self._successors = [group]
        return group

    def remove(self, row: Sequence) -> None:
        """Stop computing for a row; a token of it that is under way is dropped."""
        self._finish_verification()
        for index, member in enumerate(self.sequences):
            if member is row:
                self._cache.remove(index)
        for heir in self._successors:
            heir.remove(row)

    def preempt(self, row: Sequence) -> bool:
        """Stop computing for a row that will begin anew, and forget the token of it that is under way."""
        self._finish_verification()
        if row not in self.sequences:
            return False
        self._cache.discard(row)
        self._invalidate()
        self._decode_step.discard_pending(row)
        return True

    def maybe_compact(self, lend: Callable[[int], bool]) -> None:
        """Cut out rows that have left, once they cost more than a copy of the cache.

        Args:
            lend: Whether there are so many bytes for the copy.
        """
        live, rows = self._cache.active, len(self._cache.sequences)
        worth_it = 0 < live < rows and self._compaction.should_compact(rows, live)
        if worth_it and lend(self.size_in_bytes * live // rows):
            self.compact()

    def compact(self, *, thrifty: bool = False) -> None:
        """Cut out rows that have left."""
        if self._cache.compact(thrifty=thrifty):
            self._invalidate()

    def launch(self, speculation: Speculation | None = None) -> None:
        """Start the forward pass for all rows; its input may still be under way itself.

        Args:
            speculation: May add drafted tokens to the input of a row that is alone.
        """
        self._finish_verification()
        self._usage.advance(self._decode_step.launch(speculation))

    def read(self) -> Iterator[tuple[Sequence, int]]:
        """Tokens that the last step drew, with their rows: the only wait of a step."""
        return self._decode_step.read()

    def sample(self) -> GrammarFailures:
        """Have the next tokens drawn from the logits of `launch`; after its last one a row leaves.

        Returns:
            Rows that cannot go on; their tokens must not be read.
        """
        self._successors = []
        return self._decode_step.sample()

    def _finish_verification(self) -> None:
        """Wait for tokens that are held against drafted ones."""
        if self._decode_step.finish_verification():
            self._usage.invalidate()

    def _invalidate(self) -> None:
        """What was measured of the cache, or made for the rows in it, no longer holds."""
        self._decode_step.invalidate()
        self._usage.invalidate()
