"""Rows whose logits are no numbers: whatever is sampled from them is no answer."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

_MARK = 1 << 31
"""Above every token's id, in what carries them to the host (uint32)."""


def mark_broken(tokens: mx.array, logits: mx.array) -> mx.array:
    """Return tokens `[rows]` (uint32) with a mark on those of rows whose logits are not finite.

    So the host learns of them with the tokens, and waits for nothing else. Nothing is evaluated.

    Args:
        logits: `[rows, vocabulary]`, as the model gave them: grammars make many of them infinite.
    """
    return mx.where(mx.isfinite(mx.max(logits, axis=-1)), tokens, tokens | _MARK)


def split_marks(marked: Sequence[int]) -> tuple[list[int], frozenset[int]]:
    """Return tokens without their marks, and where the marks were."""
    if max(marked, default=0) < _MARK:
        return list(marked), frozenset()
    broken = frozenset(index for index, token in enumerate(marked) if token >= _MARK)
    return [token & (_MARK - 1) for token in marked], broken
