"""The tokens before a chunk, for embeddings of n-grams."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class NgramContext(nn.Module):  # type: ignore[misc]
    """LongCat's n-gram embeddings, mended: their own context holds padding, and too few tokens of short rows.

    Before a row's first token they read token 0. So a context that is padded on the left with token 0 gives
    the same result and has the same width in every row.
    """

    def __init__(self, embeddings: Any) -> None:
        super().__init__()
        self.embeddings = embeddings

    def __call__(self, tokens: mx.array, cache: Any = None) -> mx.array:
        if cache is None:
            embedded: mx.array = self.embeddings(tokens, cache=None)
            return embedded
        width = self.embeddings.n - 1
        lengths = cache.lengths
        if cache[0] is None:
            cache[0] = mx.zeros((len(tokens), width), dtype=mx.int64)
        context = mx.concatenate([cache[0], tokens.astype(mx.int64)], axis=1)
        embedded = self.embeddings(tokens, cache=cache)
        if lengths is not None:
            ends = mx.clip(lengths, 0, tokens.shape[1])[:, None]
            cache[0] = mx.take_along_axis(context, ends + mx.arange(width), axis=1)
            cache.advance(tokens.shape[1])
        return embedded
