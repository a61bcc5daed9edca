"""A batch of sequences that decode together over one KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.kv_cache import caches
from greenroom.engine.text.batch_cache import BatchCache, CacheGrowth, PrefilledSequences
from greenroom.engine.text.decode_step import DecodeStep, common_slow_grammar
from greenroom.engine.text.sequence import Sequence, SequenceFailures
from greenroom.engine.text.speculation import Speculation

if TYPE_CHECKING:
    from greenroom.engine.grammar.masks import MaskLatency


class Batch:
    """Sequences over one KV cache; the row of a removed sequence stays until the batch is compacted.

    An engine step calls `maybe_compact`, `launch`, `read` and `sample`. The forward pass of the next token is
    in flight while the host reads and processes the previous token. Sampling is in flight too, unless it
    needs the host.

    Args:
        model: Model, called as `model(tokens, cache=…)` with tokens of shape `[rows, 1]`; returns logits
            `[rows, 1, vocabulary]`.

    Attributes:
        batchable: Whether other sequences can be added.
        growth: Size of the cache and the schedule of its growth.
    """

    def __init__(self, model: Any, prefilled: PrefilledSequences) -> None:
        self.batchable = prefilled.batchable
        self._model = model
        self._cache = BatchCache(prefilled)
        self._decode_step = DecodeStep(model, self._cache)
        self.growth = CacheGrowth(self._cache)
        self._compaction = CompactionPolicy()
        self._successors: list[Batch] = []
        """Batches to which sequences were moved whose last tokens are still read here."""

    @property
    def sequences(self) -> list[Sequence | None]:
        """Sequences by row of the cache; None for a removed one."""
        return self._cache.sequences

    @property
    def active(self) -> int:
        return self._cache.active

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return self._cache.length

    @property
    def shape(self) -> Shape:
        """Number of rows, removed ones included, and tokens of the longest sequence."""
        return len(self._cache.sequences), self._cache.length

    @property
    def nbytes(self) -> int:
        return self._cache.nbytes

    @property
    def is_done(self) -> bool:
        return not self._decode_step.has_pending and self._cache.active == 0

    @property
    def is_waiting(self) -> bool:
        """True while the launched step waits for a grammar mask; until then rows must not change."""
        return self._decode_step.is_waiting

    @property
    def slow_grammar(self) -> MaskLatency | None:
        """Mask latency of the slow grammar that all sequences share; None if they share none."""
        return common_slow_grammar(sequence for sequence in self.sequences if sequence is not None)

    @property
    def is_verifying(self) -> bool:
        return self._decode_step.is_verifying

    def evaluate_cache(self) -> None:
        caches.evaluate(self._cache.layers)

    def pop_copied_bytes(self) -> int:
        return self._cache.pop_copied_bytes()

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, layerwise: bool = False) -> None:
        """Add sequences with a single copy of the cache.

        Args:
            layerwise: Copy one layer at a time, which is slower but needs less memory.

        Raises:
            JoinError: The sequences cannot be added; those already in the batch are not affected.
        """
        self._finish_verification()
        self.compact(layerwise=layerwise)
        self._cache.add(prefilled, layerwise=layerwise)
        self._invalidate()

    def merge(self, other: Batch) -> None:
        """Add all sequences of another batch, which keeps only its unread tokens."""
        other._finish_verification()
        other.compact()
        self.add([other._cache.detach()])
        other._invalidate()
        other._successors.append(self)

    def split(self, sequences: GenericSequence[Sequence]) -> Batch:
        self.compact()
        batch = Batch(self._model, self._cache.split_off(sequences))
        self.compact()
        self._decode_step.move(sequences)
        self._successors.append(batch)
        return batch

    def report_progress(self, sequence: Sequence) -> None:
        """Offer a partial answer to the prefix cache, after its last token was read."""
        self._cache.report_progress(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Remove a sequence if it is here; its token in flight is discarded."""
        self._finish_verification()
        for row, member in enumerate(self.sequences):
            if member is sequence:
                self._cache.remove(row)
        for successor in self._successors:
            successor.remove(sequence)

    def preempt(self, sequence: Sequence) -> bool:
        """Remove a sequence that will resume later; return whether it was here.

        Its token in flight is still read, here or in the batch that sampled it; see `discard_pending`.
        """
        self._finish_verification()
        if sequence not in self.sequences:
            return False
        self._cache.discard(sequence)
        self._invalidate()
        return True

    def discard_pending(self, sequence: Sequence) -> None:
        """Discard the token in flight of a preempted sequence, if it was sampled here."""
        self._decode_step.discard_pending(sequence)

    def maybe_compact(self, reserve: Callable[[int], bool]) -> None:
        """Compact the cache once the rows of removed sequences cost more than a copy. `reserve`: reserves
        bytes for the copy; returns whether they fit.
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
        """Launch the forward pass for all rows; their input tokens may still be in flight.

        Args:
            speculation: Speculative decoding that may add draft tokens to the input of a lone sequence.

        Returns:
            Tokens added to every row of the cache; 0 if the previous step waits for a grammar mask.
        """
        self._finish_verification()
        added = self._decode_step.launch(speculation)
        self.growth.advance(added)
        return added

    def read(self) -> Iterator[tuple[Sequence, int | None]]:
        """Yield the tokens that the last step sampled, with their sequences; the only wait in a step.

        A token of None was sampled from logits that are not finite: its sequence must end.
        """
        return self._decode_step.read()

    def sample(self) -> SequenceFailures:
        """Sample the next tokens from the logits of `launch`; remove sequences that reach their token limit.

        Returns:
            Sequences that failed; their tokens must not be read.
        """
        if not self._decode_step.has_pending:
            self._successors = []
        return self._decode_step.sample()

    def _finish_verification(self) -> None:
        if self._decode_step.finish_verification():
            self.growth.invalidate()

    def _invalidate(self) -> None:
        """Discard the cached size and the sampler after a change of rows."""
        self._decode_step.invalidate()
        self.growth.invalidate()


@attrs.define
class CompactionPolicy:
    """Weighs a copy of the cache against computing rows of removed sequences.

    Args:
        threshold: Wasted work, in whole steps of the batch, that justifies one copy.
        wasted: Wasted work since the last copy, in whole steps.
    """

    threshold: float = 1.0
    wasted: float = 0.0

    def should_compact(self, rows: int, active: int) -> bool:
        """Add the waste of one more step; return whether to compact now. `rows`: rows of the batch, removed
        ones included.
        """
        self.wasted += (rows - active) / rows
        if self.wasted < self.threshold:
            return False
        self.wasted = 0.0
        return True


Shape = tuple[int, int]
"""Rows of a batch and the length in tokens to which they are padded."""
