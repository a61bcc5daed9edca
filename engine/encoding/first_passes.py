"""Time a model's first passes, so that nobody waits for one that is too large for this device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from greenroom.engine.encoding.rows import Row, RowModel
from greenroom.engine.encoding.token_budget import TokenBudget

_SIZES = ((1, 4), (1, 8), (4, 8), (16, 8), (64, 8), (256, 8))
"""Rows and tokens of each: any model reads as many."""
_LONGEST = 0.1
"""Seconds that a pass may take by those before it; a larger one is not tried."""


def measure_passes(model: RowModel, clock: Callable[[], float], *, pairs: bool = False) -> TokenBudget:
    """Return how much a pass of a loaded model may compute at first.

    What a pass takes depends on the model's size, on the type of its numbers and on the device, and on how
    well MLX knows all three: the model tells it best itself.

    Args:
        clock: Seconds, from any origin.
        pairs: Its rows are of two texts.
    """
    measured: list[tuple[int, float]] = []
    for rows, width in _SIZES:
        tokens = rows * width
        if len(measured) > 1 and _foretold(measured, tokens) > _LONGEST:
            break
        began = clock()
        model.compute([Row(np.zeros(width, np.int32), second=1 if pairs else None)] * rows)
        measured.append((tokens, clock() - began))
    return TokenBudget.measured(measured)


def _foretold(measured: list[tuple[int, float]], tokens: int) -> float:
    (few, short), (many, long) = measured[-2:]
    return long + max(0.0, (long - short) / (many - few)) * (tokens - many)
