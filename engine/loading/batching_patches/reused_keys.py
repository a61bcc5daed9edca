"""Positions of queries, for layers that reuse the keys of another one."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


def share_positions(model: Any) -> None:
    """Have AFM's last layers place their queries as the layer does whose keys they reuse.

    They count what its cache holds, which is a row's length only where nothing is padded.
    """
    last = model.model.layers[-1].self_attn
    last.rope = source = _KeptPositions(last.rope)
    for layer in model.model.kv_reuse_layers:
        layer.self_attn.rope = _SharedPositions(layer.self_attn.rope, source)


class _KeptPositions(nn.Module):  # type: ignore[misc]
    """Rotary embeddings that remember where they began."""

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
    """Rotary embeddings that begin where others did."""

    def __init__(self, rope: Any, source: _KeptPositions) -> None:
        super().__init__()
        self.rope = rope
        self._source = source

    def __call__(self, x: mx.array, offset: Any = 0) -> mx.array:
        rotated: mx.array = self.rope(x, offset=self._source.offset)
        return rotated
