"""The sequences of a batch and the cache that they share."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.sequences.sequence import Sequence


class JoinError(Exception):
    """The caches of sequences cannot be joined with those of a batch."""


class BatchCache:
    """The cache of some sequences; the row of one that is removed stays as None until it is compacted.

    Attributes:
        sequences: By row of the cache.
        layers: Plain for one row, batched for more; empty when nothing is left to compute.
        inputs: The token of each row that is to be computed next, `[rows]` (uint32), perhaps in flight.
    """

    def __init__(self, prefilled: PrefilledSequences) -> None:
        self.sequences: list[Sequence | None] = list(prefilled.sequences)
        self.layers = prefilled.cache
        self.inputs = prefilled.inputs
        self._copied_bytes = 0

    @property
    def active(self) -> int:
        """Sequences that go on."""
        return len(self.sequences) - self.sequences.count(None)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return max([sequence.length for sequence in self.sequences if sequence is not None], default=0)

    @property
    def nbytes(self) -> int:
        """Bytes that it occupies."""
        return caches.size_in_bytes(self.layers)

    @property
    def position_shifts(self) -> tuple[int, ...]:
        """What the position of each row's next token is more than its place; empty if of none."""
        features = [sequence.features if sequence is not None else None for sequence in self.sequences]
        shifts = tuple(each.position_shift if each is not None else 0 for each in features)
        return shifts if any(shifts) else ()

    def pop_copied_bytes(self) -> int:
        """Return the bytes that were copied since the last call."""
        copied, self._copied_bytes = self._copied_bytes, 0
        return copied

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, layerwise: bool = False) -> None:
        """Add sequences, all in one copy; the cache must be compacted.

        Raises:
            JoinError: They cannot be added; nothing has changed.
        """
        single = [arrival for arrival in prefilled if len(arrival.sequences) == 1]
        batched = [arrival for arrival in prefilled if len(arrival.sequences) > 1]
        try:
            self.layers = self._joined(single, batched, layerwise)
        except Exception as error:
            if layerwise:  # what there was is gone
                raise
            raise_unless_own(error)
            raise JoinError("the caches do not fit together") from error
        ordered = [*single, *batched]
        self.inputs = mx.concatenate([self.inputs, *(arrival.inputs for arrival in ordered)])
        self.sequences += [sequence for arrival in ordered for sequence in arrival.sequences]
        self._copied_bytes += self.nbytes

    def _joined(
        self,
        single: GenericSequence[PrefilledSequences],
        batched: GenericSequence[PrefilledSequences],
        layerwise: bool,
    ) -> Cache:
        """Return the cache with these rows; the one that there is only changes if `layerwise`."""
        layers = self.layers if layerwise else caches.shallow_copy(self.layers)
        plain = [arrival.cache for arrival in single]
        if len(self.sequences) == 1:
            layers = caches.merge([layers, *plain], layerwise=layerwise)
        elif plain:
            caches.extend(layers, caches.merge(plain, layerwise=layerwise), layerwise=layerwise)
        for arrival in batched:
            caches.extend(layers, arrival.cache, layerwise=layerwise)
        return layers

    def compact(self, *, layerwise: bool = False) -> bool:
        """Copy the cache without the rows of removed sequences; return whether there were any."""
        rows = [row for row, sequence in enumerate(self.sequences) if sequence is not None]
        if len(rows) == len(self.sequences) or not rows:
            return False
        if len(rows) == 1:
            self.layers = caches.extract(self.layers, rows[0], layerwise=layerwise)
        else:
            caches.filter_rows(self.layers, rows, layerwise=layerwise)
        self._copied_bytes += self.nbytes
        self.inputs = self.inputs[mx.array(rows)]
        self.sequences = [self.sequences[row] for row in rows]
        return True

    def split_off(self, sequences: Container[Sequence]) -> PrefilledSequences:
        """Move those sequences to a cache of their own, and return them."""
        moving = {
            row: sequence
            for row, sequence in enumerate(self.sequences)
            if sequence is not None and sequence in sequences
        }
        plain = [caches.extract(self.layers, row) for row in moving]
        cache = caches.merge(plain) if len(plain) > 1 else plain[0]
        self._copied_bytes += caches.size_in_bytes(cache)
        for row in moving:
            self.sequences[row] = None
        return PrefilledSequences(tuple(moving.values()), cache, self.inputs[mx.array(list(moving))])

    def detach(self) -> PrefilledSequences:
        """Return all sequences with the cache itself, which must be compacted; nothing is left here."""
        sequences = tuple(sequence for sequence in self.sequences if sequence is not None)
        detached = PrefilledSequences(sequences, self.layers, self.inputs)
        self.sequences, self.layers = [None] * len(self.sequences), []
        return detached

    def report_progress(self, sequence: Sequence) -> None:
        """Let the prefix cache take a part of the answer of a sequence, if it is still here."""
        if sequence.on_progress is not None and sequence in self.sequences:
            row = None if len(self.sequences) == 1 else self.sequences.index(sequence)
            sequence.on_progress(sequence, self.layers, row)

    def remove(self, row: int) -> None:
        """Remove a sequence; the prefix cache may take its prompt and what was read of its answer."""
        sequence = self.sequences[row]
        if sequence is not None and sequence.on_remove is not None:
            sequence.on_remove(sequence, self.layers, None if len(self.sequences) == 1 else row)
        self.sequences[row] = None

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence that is preempted: nothing of it is read any more."""
        self.sequences[self.sequences.index(sequence)] = None
        if self.active == 0:
            self.layers = []
