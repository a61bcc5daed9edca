"""Sequences that decode together over one cache: our own step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any

from greenroom.engine.batch.batch_cache import BatchCache
from greenroom.engine.batch.cache_growth import CacheGrowth
from greenroom.engine.batch.compaction import CompactionPolicy
from greenroom.engine.batch.decode_step import DecodeStep
from greenroom.engine.batch.grammar_masks import common_slow_pace
from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.batch.shape import Shape
from greenroom.engine.kv_cache import caches
from greenroom.engine.sequences.failures import SequenceFailures
from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.speculation import Speculation

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.pace import Pace


class Batch:
    """Sequences over one cache; the row of one that is removed stays until the batch is compacted.

    A step of the engine is `maybe_compact`, `launch`, `read`, `sample`: the forward pass of the next token is
    in flight while the host reads and processes the token before it, and so is sampling it where that needs
    no host.

    Args:
        model: Called as `model(tokens, cache=…)`, tokens `[rows, 1]`; returns logits `[rows, 1, vocabulary]`.

    Attributes:
        batchable: Whether other sequences can be added.
        growth: How large its cache is, and when it grows.
    """

    def __init__(self, model: Any, prefilled: PrefilledSequences) -> None:
        self.batchable = prefilled.batchable
        self._model = model
        self._cache = BatchCache(prefilled)
        self._decode_step = DecodeStep(model, self._cache)
        self.growth = CacheGrowth(self._cache)
        self._compaction = CompactionPolicy()
        self._successors: list[Batch] = []
        """Batches to which sequences were moved whose last tokens are read here."""

    @property
    def sequences(self) -> list[Sequence | None]:
        """By row of the cache; None where one was removed."""
        return self._cache.sequences

    @property
    def active(self) -> int:
        """Sequences that go on."""
        return self._cache.active

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return self._cache.length

    @property
    def shape(self) -> Shape:
        """Rows that are computed, and the length of the longest."""
        return len(self._cache.sequences), self._cache.length

    @property
    def nbytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.nbytes

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to compute or to read."""
        return not self._decode_step.has_pending and self._cache.active == 0

    @property
    def is_waiting(self) -> bool:
        """Whether the step that was launched waits for a grammar; until then no rows may come, go or move."""
        return self._decode_step.is_waiting

    @property
    def slow_pace(self) -> Pace | None:
        """The pace of the slow grammar that all its sequences follow, so that no others wait for it."""
        return common_slow_pace(sequence for sequence in self.sequences if sequence is not None)

    @property
    def is_verifying(self) -> bool:
        """Whether the step that was launched is one over drafted tokens."""
        return self._decode_step.is_verifying

    def evaluate_cache(self) -> None:
        """Wait for copies of the cache that are pending, so that what they were made from is freed."""
        caches.evaluate(self._cache.layers)

    def pop_copied_bytes(self) -> int:
        """Return the bytes of caches that were copied since the last call."""
        return self._cache.pop_copied_bytes()

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, layerwise: bool = False) -> None:
        """Add sequences, all in one copy of the cache.

        Args:
            layerwise: Copy layer by layer, which takes longer and less memory.

        Raises:
            JoinError: They cannot be added; those that there are go on.
        """
        self._finish_verification()
        self.compact(layerwise=layerwise)
        self._cache.add(prefilled, layerwise=layerwise)
        self._invalidate()

    def merge(self, other: Batch) -> None:
        """Add all sequences of another batch, which keeps only the tokens that it has yet to read."""
        other._finish_verification()
        other.compact()
        self.add([other._cache.detach()])
        other._invalidate()
        other._successors = [self]

    def split(self, sequences: GenericSequence[Sequence]) -> Batch:
        """Move sequences, some but not all, to a batch of their own, and return it."""
        self.compact()
        batch = Batch(self._model, self._cache.split_off(sequences))
        self.compact()
        self._decode_step.move(sequences)
        self._successors.append(batch)
        return batch

    def report_progress(self, sequence: Sequence) -> None:
        """Let the prefix cache take a part of an answer whose last token was just read."""
        self._cache.report_progress(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Stop computing for a sequence, if it is here; a token of it that is in flight is dropped."""
        self._finish_verification()
        for row, member in enumerate(self.sequences):
            if member is sequence:
                self._cache.remove(row)
        for successor in self._successors:
            successor.remove(sequence)

    def preempt(self, sequence: Sequence) -> bool:
        """Stop computing for a sequence that will be resumed; return whether it was here.

        Its token that is in flight is still read, here or where it was sampled; see `discard_pending`.
        """
        self._finish_verification()
        if sequence not in self.sequences:
            return False
        self._cache.discard(sequence)
        self._invalidate()
        return True

    def discard_pending(self, sequence: Sequence) -> None:
        """Drop the token in flight of a sequence that was preempted, if it was sampled here."""
        self._decode_step.discard_pending(sequence)

    def maybe_compact(self, reserve: Callable[[int], bool]) -> None:
        """Compact once the rows of removed sequences cost more than a copy of the cache.

        Args:
            reserve: Reserves bytes for the copy; returns whether they are there.
        """
        active, rows = self._cache.active, len(self._cache.sequences)
        worth_it = 0 < active < rows and self._compaction.should_compact(rows, active)
        if worth_it and reserve(self.nbytes * active // rows):
            self.compact()

    def compact(self, *, layerwise: bool = False) -> None:
        """Copy the cache without the rows of removed sequences, if there are any."""
        if self._cache.compact(layerwise=layerwise):
            self._invalidate()

    def launch(self, speculation: Speculation | None = None) -> int:
        """Start the forward pass for all rows; its input may still be in flight itself.

        Args:
            speculation: May add drafted tokens to the input of a sequence that is alone.

        Returns:
            Tokens that it adds to the cache of every row: none if the step before waits for a grammar.
        """
        self._finish_verification()
        added = self._decode_step.launch(speculation)
        self.growth.advance(added)
        return added

    def read(self) -> Iterator[tuple[Sequence, int | None]]:
        """Yield the tokens that the last step sampled, with their sequences: the only wait of a step.

        None stands for one that was sampled from what is no number: its sequence cannot go on.
        """
        return self._decode_step.read()

    def sample(self) -> SequenceFailures:
        """Sample the next tokens from the logits of `launch`; a sequence is removed after its last one.

        Returns:
            Sequences that cannot go on; their tokens must not be read.
        """
        if not self._decode_step.has_pending:
            self._successors = []
        return self._decode_step.sample()

    def _finish_verification(self) -> None:
        """Wait for tokens that are compared with drafted ones."""
        if self._decode_step.finish_verification():
            self.growth.invalidate()

    def _invalidate(self) -> None:
        """Measure the cache again and make another sampler: the rows have changed."""
        self._decode_step.invalidate()
        self.growth.invalidate()
