"""The mask of a batch, for an attention that splits heads into groups."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class GroupedHeadsMask(nn.Module):  # type: ignore[misc]
    """Gemma 2's attention, which splits heads into groups but not the mask of a batch.

    A mask `[rows, 1, tokens, cached]` met scores `[rows, groups, heads, tokens, cached]`: an error, or, with
    as many rows as groups, each row under another one's mask.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        if mask is not None and mask.ndim == 4 and self.attention.repeats > 1:
            mask = mask[:, :, None]
        attended: mx.array = self.attention(x, mask, cache)
        return attended
