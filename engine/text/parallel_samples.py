"""Parallel samples: several answers to one prompt, which is computed once and then cloned."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from greenroom.engine.kv_cache import caches
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.text.batch_cache import PrefilledSequences
from greenroom.engine.text.sequence import Sequence, SequenceFailures, not_computed


def with_parallel_samples(
    prefilled: Iterable[PrefilledSequences],
) -> tuple[list[PrefilledSequences], SequenceFailures]:
    """Add each request's other parallel samples to its prefilled sequence; return them and the failures."""
    ready: list[PrefilledSequences] = []
    failures: SequenceFailures = []
    for firsts in prefilled:
        try:
            ready += _with_choices(firsts)
        except Exception as error:
            raise_unless_own(error)
            failures += not_computed(firsts.sequences, "copying for further choices")
    return ready, failures


def _with_choices(firsts: PrefilledSequences) -> list[PrefilledSequences]:
    choices = {row: (first, *parallel_samples_of(first)) for row, first in enumerate(firsts.sequences)}
    for first, *others in choices.values():
        for choice in others:
            choice.metrics.started_at = first.metrics.started_at
    sequences = tuple(choice for row in choices for choice in choices[row])
    if len(sequences) == len(firsts.sequences):
        return [firsts]
    if firsts.batchable:
        rows = [row for row in choices for _ in choices[row]]
        cache = caches.merge([firsts.cache]) if len(firsts.sequences) == 1 else firsts.cache
        caches.filter_rows(cache, rows)
        return [PrefilledSequences(sequences, cache)]
    copied = [PrefilledSequences((choice,), copy.deepcopy(firsts.cache)) for choice in sequences[1:]]
    return [*copied, firsts]


def parallel_samples_of(sequence: Sequence) -> tuple[Sequence, ...]:
    """Return the parallel samples that start together with a sequence, once its prompt is computed."""
    if sequence.on_its_own:
        return ()
    return tuple(choice for choice in sequence.parallel_samples if not choice.on_its_own)
