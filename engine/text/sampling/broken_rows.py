"""Detection of rows with non-finite logits, whose samples are meaningless."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_MARK = 1 << 31
"""Bit above every token id in the uint32 tokens sent to the host."""


def mark_broken(tokens: mx.array, logits: mx.array) -> mx.array:
    """Mark the tokens `[rows]` (uint32) of rows whose logits are not finite.

    The host learns of broken rows together with the tokens, without another wait. Nothing is evaluated.

    Args:
        logits: The model's own logits, `[rows, vocabulary]`; grammar masks would make many of them infinite.
    """
    return mx.where(mx.isfinite(mx.max(logits, axis=-1)), tokens, tokens | _MARK)


def split_marks(marked: Sequence[int]) -> tuple[list[int], frozenset[int]]:
    """Return the tokens without their marks, and the indices of the marks."""
    if max(marked, default=0) < _MARK:
        return list(marked), frozenset()
    broken = frozenset(index for index, token in enumerate(marked) if token >= _MARK)
    return [token & (_MARK - 1) for token in marked], broken
