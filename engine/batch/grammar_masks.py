"""Grammars of the rows of a batch: which of their tokens may be drawn next."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.problems import Problem

Refused = list[tuple[Sequence, Problem]]
"""Rows whose grammar cannot go on, and why."""


def constrain(logits: mx.array, rows: GenericSequence[Sequence | None]) -> tuple[mx.array, Refused]:
    """Logits `[rows, vocabulary]` in which no grammar's forbidden token can be drawn.

    The masks are computed here, on the host, while the forward pass that gives the logits is under way.
    """
    matchers = {i: row.matcher for i, row in enumerate(rows) if row is not None and row.matcher is not None}
    if not matchers:
        return logits, []
    from greenroom.engine.grammar.batch_masks import apply_masks, compute_masks
    from greenroom.engine.grammar.token_mask import TokenMask

    masks: dict[int, TokenMask] = {}
    refused: Refused = []
    for index, mask in compute_masks(matchers).items():
        row = rows[index]
        if isinstance(mask, TokenMask):
            masks[index] = mask
        elif row is not None:
            refused.append((row, mask))
    return (apply_masks(logits, masks) if masks else logits), refused
