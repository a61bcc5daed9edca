"""Rows and the cache that they share: who is in it, who comes and who goes."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.kv_cache import caches
from greenroom.engine.sequences.sequence import Sequence


class BatchCache:
    """The cache of some rows; one that has left stays as None until the others are copied without it.

    Attributes:
        rows: In the order in which the cache holds them.
        layers: Plain for one row, batched for more; none when there is nobody left to compute for.
        inputs: The token of each row that is to be computed next, `[rows]` (uint32), perhaps under way.
    """

    def __init__(self, first: PrefilledSequences) -> None:
        self.sequences: list[Sequence | None] = list(first.sequences)
        self.layers = first.cache
        self.inputs = first.inputs
        self._copied = 0

    @property
    def active(self) -> int:
        """Rows that go on."""
        return len(self.sequences) - self.sequences.count(None)

    @property
    def length(self) -> int:
        """Tokens of the longest row."""
        return max([row.length for row in self.sequences if row is not None], default=0)

    @property
    def size_in_bytes(self) -> int:
        """Bytes that it occupies."""
        return caches.size_in_bytes(self.layers)

    def take_copied_bytes(self) -> int:
        """Bytes that were copied since the last call."""
        copied, self._copied = self._copied, 0
        return copied

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, thrifty: bool = False) -> None:
        """Take in rows, all in one copy; nobody who has left may be in it."""
        plain = [arrival for arrival in prefilled if len(arrival.sequences) == 1]
        batched = [arrival for arrival in prefilled if len(arrival.sequences) > 1]
        lone = [arrival.cache for arrival in plain]
        if len(self.sequences) == 1:
            self.layers = caches.merge([self.layers, *lone], layerwise=thrifty)
        elif lone:
            caches.extend(self.layers, caches.merge(lone, layerwise=thrifty), layerwise=thrifty)
        for arrival in batched:
            caches.extend(self.layers, arrival.cache, layerwise=thrifty)
        ordered = [*plain, *batched]
        self.inputs = mx.concatenate([self.inputs, *(arrival.inputs for arrival in ordered)])
        self.sequences += [row for arrival in ordered for row in arrival.sequences]
        self._copied += self.size_in_bytes

    def compact(self, *, thrifty: bool = False) -> bool:
        """Copy the rows that go on without those that have left; whether there was anything to do."""
        keep = [index for index, row in enumerate(self.sequences) if row is not None]
        if len(keep) == len(self.sequences) or not keep:
            return False
        if len(keep) == 1:
            self.layers = caches.extract(self.layers, keep[0], layerwise=thrifty)
        else:
            caches.filter_rows(self.layers, keep, layerwise=thrifty)
        self._copied += self.size_in_bytes
        self.inputs = self.inputs[mx.array(keep)]
        self.sequences = [self.sequences[index] for index in keep]
        return True

    def split_off(self, longest: int) -> PrefilledSequences:
        """Copy the rows up to that length to a cache of their own; here they have left."""
        moving = {i: row for i, row in enumerate(self.sequences) if row is not None and row.length <= longest}
        plain = [caches.extract(self.layers, index) for index in moving]
        cache = caches.merge(plain) if len(plain) > 1 else plain[0]
        self._copied += caches.size_in_bytes(cache)
        for index in moving:
            self.sequences[index] = None
        return PrefilledSequences(tuple(moving.values()), cache, self.inputs[mx.array(list(moving))])

    def detach(self) -> PrefilledSequences:
        """The rows that go on, with the cache itself; nobody who has left may be in it."""
        everything = PrefilledSequences(
            tuple(row for row in self.sequences if row is not None), self.layers, self.inputs
        )
        self.sequences, self.layers = [None] * len(self.sequences), []
        return everything

    def remove(self, index: int) -> None:
        """A row leaves; the cache holds its prompt and what was read of its answer."""
        row = self.sequences[index]
        if row is not None and row.on_remove is not None:
            row.on_remove(row, self.layers, None if len(self.sequences) == 1 else index)
        self.sequences[index] = None

    def discard(self, row: Sequence) -> None:
        """A row leaves of which nothing will be read any more."""
        self.sequences[self.sequences.index(row)] = None
        if self.active == 0:
            self.layers = []
