"""Grammars of the rows of a batch: which of their tokens may be drawn next."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.problems import Problem

GrammarFailures = list[tuple[Sequence, Problem]]
"""Rows whose grammar cannot go on, and why."""


def apply_grammars(
    logits: mx.array, sequences: GenericSequence[Sequence | None]
) -> tuple[mx.array, GrammarFailures]:
    """Logits `[rows, vocabulary]` in which no grammar's forbidden token can be drawn.

    The masks are computed here, on the host, while the forward pass that gives the logits is under way.
    """
    matchers = {
        index: sequence.matcher
        for index, sequence in enumerate(sequences)
        if sequence is not None and sequence.matcher is not None
    }
    if not matchers:
        return logits, []
    from greenroom.engine.grammar.batch_masks import apply_masks, compute_masks
    from greenroom.engine.grammar.token_mask import TokenMask

    masks: dict[int, TokenMask] = {}
    refused: GrammarFailures = []
    for index, mask in compute_masks(matchers).items():
        row = sequences[index]
        if isinstance(mask, TokenMask):
            masks[index] = mask
        elif row is not None:
            refused.append((row, mask))
    return (apply_masks(logits, masks) if masks else logits), refused
