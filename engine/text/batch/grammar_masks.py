"""Grammar masks of a batch, which exclude tokens from sampling."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import TYPE_CHECKING

import mlx.core as mx

from greenroom.engine.text.sequences.failures import SequenceFailures
from greenroom.engine.text.sequences.sequence import Sequence

if TYPE_CHECKING:
    from greenroom.engine.grammar.matching.mask_latency import MaskLatency


def common_slow_grammar(sequences: Iterable[Sequence]) -> MaskLatency | None:
    """Return the mask latency of the slow grammar that all these sequences share; None if they share none."""
    grammars = {sequence.slow_grammar for sequence in sequences}
    return grammars.pop() if len(grammars) == 1 else None


def prepare_masks(
    sequences: GenericSequence[Sequence | None], tokens: GenericSequence[int] | None = None
) -> bool:
    """Start computing slow masks on other threads; return whether all masks are ready.

    Args:
        tokens: Next token of each sequence, not yet accepted by its grammar; None if all are accepted.
    """
    are_there = True
    for index, sequence in enumerate(sequences):
        if sequence is not None and sequence.matcher is not None and not sequence.finished:
            are_there &= sequence.matcher.prepare(None if tokens is None else tokens[index])
    return are_there


def apply_grammars(
    logits: mx.array, sequences: GenericSequence[Sequence | None]
) -> tuple[mx.array, SequenceFailures]:
    """Mask logits `[rows, vocabulary]` so that tokens forbidden by a grammar cannot be sampled.

    The host computes the masks while the forward pass for the logits is in flight.
    """
    matchers = {
        row: sequence.matcher
        for row, sequence in enumerate(sequences)
        if sequence is not None and sequence.matcher is not None
    }
    if not matchers:
        return logits, []
    from greenroom.engine.grammar.matching.batch_masks import apply_masks, compute_masks
    from greenroom.engine.grammar.matching.token_mask import TokenMask

    masks: dict[int, TokenMask] = {}
    failures: SequenceFailures = []
    for row, mask in compute_masks(matchers).items():
        sequence = sequences[row]
        if isinstance(mask, TokenMask):
            masks[row] = mask
        elif sequence is not None:
            failures.append((sequence, mask))
    return (apply_masks(logits, masks) if masks else logits), failures
