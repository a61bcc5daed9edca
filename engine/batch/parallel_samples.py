"""Several answers to one prompt: computed once, then cloned."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from greenroom.engine.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.kv_cache import caches
from greenroom.engine.sequences.sequence import Sequence


def with_parallel_samples(prefilled: Iterable[PrefilledSequences]) -> Iterator[PrefilledSequences]:
    """Yield the sequences that can decode, and behind each the further choices of its request."""
    for firsts in prefilled:
        choices = {row: (first, *parallel_samples_of(first)) for row, first in enumerate(firsts.sequences)}
        for first, *others in choices.values():
            for choice in others:
                choice.metrics.started_at = first.metrics.started_at
        sequences = tuple(choice for row in choices for choice in choices[row])
        if len(sequences) == len(firsts.sequences):
            yield firsts
        elif firsts.batchable:
            rows = [row for row in choices for _ in choices[row]]
            cache = caches.merge([firsts.cache]) if len(firsts.sequences) == 1 else firsts.cache
            caches.filter_rows(cache, rows)
            yield PrefilledSequences(sequences, cache)
        else:
            for choice in sequences[1:]:
                yield PrefilledSequences((choice,), copy.deepcopy(firsts.cache))
            yield firsts


def parallel_samples_of(sequence: Sequence) -> tuple[Sequence, ...]:
    """Return the choices that begin with a sequence, once its prompt is computed."""
    if sequence.on_its_own:
        return ()
    return tuple(choice for choice in sequence.parallel_samples if not choice.on_its_own)
