"""Several answers to one prompt: computed once, then cloned."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.kv_cache import caches
from greenroom.engine.sequences.sequence import Sequence


def with_parallel_samples(ready: Iterable[PrefilledSequences]) -> Iterator[PrefilledSequences]:
    """The rows that can decode, and behind each the further choices of its request."""
    for joining in ready:
        rows = [twin for row in joining.sequences for twin in (row, *parallel_samples_of(row))]
        for row in joining.sequences:
            for twin in parallel_samples_of(row):
                twin.started_at = row.started_at
        if len(rows) == len(joining.sequences):
            yield joining
        elif joining.batchable:
            places = [i for i, row in enumerate(joining.sequences) for _ in (row, *parallel_samples_of(row))]
            cache = caches.merge([joining.cache]) if len(joining.sequences) == 1 else joining.cache
            caches.filter_rows(cache, places)
            yield PrefilledSequences(tuple(rows), cache)
        else:
            for row in rows[1:]:
                yield PrefilledSequences((row,), copy.deepcopy(joining.cache))
            yield joining


def parallel_samples_of(row: Sequence) -> tuple[Sequence, ...]:
    """The choices that begin with a row, once its prompt is computed."""
    return () if row.on_its_own else tuple(twin for twin in row.parallel_samples if not twin.on_its_own)
