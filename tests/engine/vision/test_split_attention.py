"""Attention in parts equals attention in one operation, bit for bit."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from greenroom.engine.vision import chunked_encoder
from greenroom.engine.vision.chunked_encoder import SplitAttention

_ROWS, _HEADS, _COUNT, _WIDTH = 2, 4, 70, 16


def _attend(named: dict[str, Any], shared: int = 1) -> mx.array:
    mx.random.seed(0)
    # Towers use this memory layout: the heads of a token are adjacent.
    queries, keys, values = (
        mx.random.normal((_ROWS, _COUNT, heads, _WIDTH)).swapaxes(1, 2)
        for heads in (_HEADS, _HEADS // shared, _HEADS // shared)
    )
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=0.3, **named)


@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize(
    "mask", [(), (_COUNT,), (1,), (_ROWS, 1, _COUNT), (_ROWS, _HEADS, _COUNT), (_HEADS, 1)]
)
@pytest.mark.parametrize("limit", [1e4, 3e5])
def test_parts_are_those_of_the_whole(
    shared: int, mask: tuple[int, ...], limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked_encoder, "_PIECE_WORK", {"cpu": limit, "gpu": limit})
    named: dict[str, Any] = {}
    if mask:
        named["mask"] = mx.random.uniform(shape=(*mask, _COUNT), key=mx.random.key(1)) < 0.7
    whole = _attend(named, shared)
    split = chunked_encoder.RowChunkedLayers()
    with split.replacing({}):
        parted = _attend(named, shared)
    pieces = [part for piece in split.pop_pieces() for part in piece]
    assert len(pieces) > 2 * _ROWS
    assert mx.array_equal(parted, whole)


def test_sinks_are_those_of_a_parts_heads() -> None:
    queries, keys, values = (mx.random.normal((1, 4, 8, 8), key=mx.random.key(seed)) for seed in range(3))
    sinks = mx.array([0.0, 3.0, -2.0, 9.0])
    attend = mx.fast.scaled_dot_product_attention
    whole = attend(queries, keys, values, scale=1.0, sinks=sinks)
    attention = SplitAttention(attend, queries, keys, values, {"scale": 1.0, "sinks": sinks})
    assert mx.allclose(attention.part(0, 1, 2, 0, 8), whole[:, 1:3], atol=1e-6)


@pytest.mark.parametrize(("limit", "heads"), [(1.0, 2), (150.0, 2), (470.0, 4), (1e9, 8)])
def test_a_part_has_few_heads_before_it_has_few_queries(limit: float, heads: int) -> None:
    """Heads that share keys stay together, since each part reads its keys again."""
    queries, keys = mx.zeros((1, 8, 64, 4)), mx.zeros((1, 4, 64, 4))
    attention = SplitAttention(mx.fast.scaled_dot_product_attention, queries, keys, keys, {})
    assert attention.heads_at_once(work=1.0, limit=limit, tile=100) == heads
