"""The KV cache shared by the sequences of a batch."""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.text.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.text.sequences.sequence import Sequence


class JoinError(Exception):
    """Error if caches of sequences cannot be joined with a batch's cache."""


class BatchCache:
    """KV cache of a batch; the row of a removed sequence stays, as None, until compaction.

    Attributes:
        sequences: Sequences by row of the cache.
        layers: Unbatched layer caches for one row, batched ones for more; empty if nothing is left to
            compute.
        inputs: Next input token of each row, `[rows]` (uint32), possibly in flight.
    """

    def __init__(self, prefilled: PrefilledSequences) -> None:
        self.sequences: list[Sequence | None] = list(prefilled.sequences)
        self.layers = prefilled.cache
        self.inputs = prefilled.inputs
        self._copied_bytes = 0

    @property
    def active(self) -> int:
        """Number of sequences that are not removed."""
        return len(self.sequences) - self.sequences.count(None)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return max([sequence.length for sequence in self.sequences if sequence is not None], default=0)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return caches.size_in_bytes(self.layers)

    @property
    def position_shifts(self) -> tuple[int, ...]:
        """Offset from cache index to position id of each row's next token; empty if all are 0."""
        features = [sequence.features if sequence is not None else None for sequence in self.sequences]
        shifts = tuple(each.position_shift if each is not None else 0 for each in features)
        return shifts if any(shifts) else ()

    def pop_copied_bytes(self) -> int:
        """Return the bytes copied since the last call."""
        copied, self._copied_bytes = self._copied_bytes, 0
        return copied

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, layerwise: bool = False) -> None:
        """Add sequences with a single copy; the cache must be compacted.

        Raises:
            JoinError: The sequences cannot be added; the cache is unchanged.
        """
        single = [arrival for arrival in prefilled if len(arrival.sequences) == 1]
        batched = [arrival for arrival in prefilled if len(arrival.sequences) > 1]
        try:
            self.layers = self._joined(single, batched, layerwise)
        except Exception as error:
            if layerwise:  # the old cache is gone
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
        """Return the cache with added rows; the current one changes only if `layerwise`."""
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
        """Move sequences to a cache of their own and return them."""
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
        """Move all sequences out together with the cache, which must be compacted."""
        sequences = tuple(sequence for sequence in self.sequences if sequence is not None)
        detached = PrefilledSequences(sequences, self.layers, self.inputs)
        self.sequences, self.layers = [None] * len(self.sequences), []
        return detached

    def report_progress(self, sequence: Sequence) -> None:
        """Offer a sequence's partial answer to the prefix cache, if the sequence is still here."""
        if sequence.on_progress is not None and sequence in self.sequences:
            row = None if len(self.sequences) == 1 else self.sequences.index(sequence)
            sequence.on_progress(sequence, self.layers, row)

    def remove(self, row: int) -> None:
        """Remove a sequence; the prefix cache may take its prompt and the tokens read so far."""
        sequence = self.sequences[row]
        if sequence is not None and sequence.on_remove is not None:
            sequence.on_remove(sequence, self.layers, None if len(self.sequences) == 1 else row)
        self.sequences[row] = None

    def discard(self, sequence: Sequence) -> None:
        """Remove a preempted sequence, without offering it to the prefix cache."""
        self.sequences[self.sequences.index(sequence)] = None
        if self.active == 0:
            self.layers = []
