"""Changes to running batches: sequences join, and batches are split or merged if that makes steps cheaper."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.growth import GROWTH_STEP
from greenroom.engine.text.batch.batch import Batch
from greenroom.engine.text.batch.batch_cache import JoinError
from greenroom.engine.text.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.text.memory.kv_memory import KvMemory
from greenroom.engine.text.scheduler.decoding.batch_policy import BatchLimits, BatchPolicy
from greenroom.engine.text.scheduler.decoding.placement import open_to
from greenroom.engine.text.sequences.failures import SequenceFailures, not_computed


def join(
    model: Any, batch: Batch, arrivals: list[PrefilledSequences], memory: KvMemory
) -> tuple[list[Batch], SequenceFailures]:
    """Add sequences to a batch if the copy fits into memory; else they decode in batches of their own.

    If joining fails, each arrival is tried by itself to find the faulty one.

    Returns:
        New batches for sequences that did not fit, and sequences that cannot be added.
    """
    sequences = [sequence for prefilled in arrivals for sequence in prefilled.sequences]
    longest = max(batch.length, *(sequence.length for sequence in sequences))
    merged = memory.size_model.nbytes(batch.active + len(sequences), longest + GROWTH_STEP)
    current = batch.nbytes + sum(caches.size_in_bytes(prefilled.cache) for prefilled in arrivals)
    try:
        if memory.reserve_temporary(2 * merged):
            batch.add(arrivals)
        elif memory.reserve_temporary(max(0, merged - current) + memory.headroom_for(merged)):
            batch.add(arrivals, layerwise=True)
        else:
            return [Batch(model, prefilled) for prefilled in arrivals], []
    except JoinError:
        if len(arrivals) == 1:
            return [], not_computed(sequences, "joining of a batch")
        made: list[Batch] = []
        failures: SequenceFailures = []
        for each in arrivals:
            beside, failed = join(model, batch, [each], memory)
            made, failures = made + beside, failures + failed
        return made, failures
    return [], []


def rearrange(
    running: Iterable[Batch], policy: BatchPolicy, limits: BatchLimits, memory: KvMemory
) -> list[Batch]:
    """Split one batch or merge two if that makes steps cheaper; return the batch split off, if any."""
    batches = open_to(None, running)
    for batch in batches:
        sequences = [sequence for sequence in batch.sequences if sequence is not None]
        longest = policy.split([sequence.length for sequence in sequences], limits)
        if longest is not None and memory.reserve_temporary(2 * batch.nbytes):
            return [batch.split([sequence for sequence in sequences if sequence.length <= longest])]
    pair = policy.merge([batch.shape for batch in batches], limits)
    if pair is not None:
        one, other = (batches[index] for index in pair)
        rows, length = one.active + other.active, max(one.length, other.length)
        if memory.reserve_temporary(2 * memory.size_model.nbytes(rows, length + GROWTH_STEP)):
            one.merge(other)
    return []
