"""Placement of sequences in batches, separation of slow grammars, and the choice of batches to launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from greenroom.engine.text.batch.batch import Batch
from greenroom.engine.text.batch.grammar_masks import common_slow_grammar
from greenroom.engine.text.batch.prefilled_sequences import PrefilledSequences
from greenroom.engine.text.batch.shape import Shape
from greenroom.engine.text.scheduler.decoding.batch_policy import BatchLimits, BatchPolicy
from greenroom.engine.text.sequences.sequence import Sequence

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.mask_latency import MaskLatency

Arrivals = dict[Batch, list[PrefilledSequences]]
"""Prefilled sequences to be added, by their target batch."""


def movable(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches whose rows can be added, removed or moved: those not waiting for a grammar mask."""
    return [batch for batch in batches if not batch.is_waiting]


def open_to(grammar: MaskLatency | None, batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that sequences with this slow grammar may join; None for sequences without one."""
    return [
        batch
        for batch in movable(batches)
        if batch.active and batch.batchable and batch.slow_grammar is grammar
    ]


def take_turns(batches: list[Batch]) -> list[Batch]:
    """Return the batches to launch, at most one with a slow grammar, which moves to the end of the list."""
    slow = [batch for batch in movable(batches) if batch.active and batch.slow_grammar is not None]
    if slow:
        batches.remove(slow[0])
        batches.append(slow[0])
    return [batch for batch in batches if batch not in slow[1:]]


def place(
    prefilled: PrefilledSequences,
    batches: Iterable[Batch],
    arrivals: Arrivals,
    policy: BatchPolicy,
    limits: BatchLimits,
) -> Batch | None:
    """Return the batch to add sequences to; None if they need a batch of their own.

    Sequences with a slow grammar share a batch only with sequences under the same grammar.

    Args:
        arrivals: Sequences already assigned to a batch in this step.
    """
    if not prefilled.batchable:
        return None
    grammar = common_slow_grammar(prefilled.sequences)
    candidates = open_to(grammar, batches)
    shapes = [_shape(batch, arrivals.get(batch, [])) for batch in candidates]
    longest = max(sequence.length for sequence in prefilled.sequences)
    index = policy.place(shapes, (len(prefilled.sequences), longest), limits)
    return None if index is None else candidates[index]


def separate_slow(batches: Iterable[Batch], reserve: Callable[[int], bool]) -> list[Batch]:
    """Split sequences with slow grammars off batches in which others would wait for them.

    Args:
        reserve: Reserves bytes for the copies; returns whether they fit.

    Returns:
        The new batches, one per slow grammar.
    """
    made: list[Batch] = []
    for batch in batches:
        by_grammar: dict[MaskLatency | None, list[Sequence]] = {}
        for sequence in batch.sequences:
            if sequence is not None:
                by_grammar.setdefault(sequence.slow_grammar, []).append(sequence)
        stays = None if None in by_grammar else next(iter(by_grammar), None)
        for grammar, sequences in by_grammar.items():
            if grammar is not stays and reserve(2 * batch.nbytes):
                made.append(batch.split(sequences))
    return made


def _shape(batch: Batch, joining: Iterable[PrefilledSequences]) -> Shape:
    rows, longest = batch.shape
    lengths = [sequence.length for prefilled in joining for sequence in prefilled.sequences]
    return rows + len(lengths), max([longest, *lengths])
