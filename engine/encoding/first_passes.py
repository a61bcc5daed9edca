"""Timing of a model's first passes, so that no request meets a pass that is too large for this device."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from greenroom.engine.encoding.rows import Row, RowModel
from greenroom.engine.encoding.token_budget import TokenBudget

_SIZES = ((1, 4), (1, 8), (4, 8), (16, 8), (64, 8), (256, 8))
"""Rows and tokens per row of each trial; every model accepts these lengths."""
_LONGEST = 0.1
"""Time limit of a trial in seconds; a pass predicted to take longer is not tried."""


def measure_passes(model: RowModel, clock: Callable[[], float], *, pairs: bool = False) -> TokenBudget:
    """Return the initial token budget of a loaded model's passes.

    A pass's time depends on the model's size, its dtype, the device and MLX's kernels for them, so it is
    measured.

    Args:
        clock: Clock in seconds, of any origin.
        pairs: True if the model's rows are pairs of texts.
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
