"""Grammars of the sequences of a batch: which of their tokens may be sampled next."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.problems import Problem

GrammarFailures = list[tuple[Sequence, Problem]]
"""Sequences whose grammar cannot go on, and why."""


def apply_grammars(
    logits: mx.array, sequences: GenericSequence[Sequence | None]
) -> tuple[mx.array, GrammarFailures]:
    """Return logits `[rows, vocabulary]` from which no token that a grammar forbids can be sampled.

    The masks are computed here, on the host, while the forward pass that gives the logits is in flight.
    """
    matchers = {
        row: sequence.matcher
        for row, sequence in enumerate(sequences)
        if sequence is not None and sequence.matcher is not None
    }
    if not matchers:
        return logits, []
    from greenroom.engine.grammar.batch_masks import apply_masks, compute_masks
    from greenroom.engine.grammar.token_mask import TokenMask

    masks: dict[int, TokenMask] = {}
    failures: GrammarFailures = []
    for row, mask in compute_masks(matchers).items():
        sequence = sequences[row]
        if isinstance(mask, TokenMask):
            masks[row] = mask
        elif sequence is not None:
            failures.append((sequence, mask))
    return (apply_masks(logits, masks) if masks else logits), failures
