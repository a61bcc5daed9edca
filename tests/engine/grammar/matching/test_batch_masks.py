from __future__ import annotations

import random
from typing import Any

import pytest

from greenroom.engine.grammar.masks import allow_only
from greenroom.engine.grammar.matcher import apply_masks


@pytest.mark.parametrize("rows", [[1], [0, 3], [0, 1, 2, 3], [0, 2, 3]])
@pytest.mark.parametrize("width", [64, 70, 100])
def test_masks_touch_only_their_rows(rows: list[int], width: int) -> None:
    import mlx.core as mx

    chance = random.Random(width)
    wanted = {row: sorted(chance.sample(range(70), 20)) for row in rows}
    logits = mx.random.normal((4, width))
    before: Any = mx.array(logits).tolist()
    after = apply_masks(logits, {row: allow_only(tokens, 3) for row, tokens in wanted.items()}).tolist()
    for row in range(4):
        for token in range(width):
            kept = row not in wanted or token in wanted[row]
            assert after[row][token] == (before[row][token] if kept else float("-inf"))
