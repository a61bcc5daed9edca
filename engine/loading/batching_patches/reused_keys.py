"""Positions of queries, for layers that reuse the keys of another one."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


def share_positions(model: Any) -> None:
    """Give the queries of AFM's last layers the positions of the layer whose keys they reuse.

    By themselves they use the length of its cache, which equals a row's length only without padding.
    """
    last = model.model.layers[-1].self_attn
    last.rope = source = _KeptPositions(last.rope)
    for layer in model.model.kv_reuse_layers:
        layer.self_attn.rope = _SharedPositions(layer.self_attn.rope, source)


class _KeptPositions(nn.Module):  # type: ignore[misc]
    """Rotary embeddings that remember their last offset."""

    def __init__(self, rope: Any) -> None:
        super().__init__()
        self.rope = rope
        self._offset: Any = 0

    @property
    def offset(self) -> Any:
        return self._offset

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        self._offset = offset
        rotated: mx.array = self.rope(x, offset=offset)
        return rotated


class _SharedPositions(nn.Module):  # type: ignore[misc]
    """Rotary embeddings that reuse the last offset of others."""

    def __init__(self, rope: Any, source: _KeptPositions) -> None:
        super().__init__()
        self.rope = rope
        self._source = source

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        rotated: mx.array = self.rope(x, offset=self._source.offset)
        return rotated
