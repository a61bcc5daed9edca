"""Token times by dynamic time warping over Whisper's cross-attention.

The method is that of OpenAI's `timing.py` (after Giorgino, J. Stat. Softw. 31, 2009). mlx-audio implements
it element by element in Python, which holds the GIL for seconds in each window.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

_MEDIAN_WIDTH = 7


def normalize(weights: Matrix) -> Matrix:
    """Return attention standardized over tokens and median-filtered over positions.

    Args:
        weights: Attention of one head, `[tokens, positions]`.
    """
    spread = weights.std(axis=-2, keepdims=True)
    normalized = (weights - weights.mean(axis=-2, keepdims=True)) / np.where(spread > 0, spread, 1)
    return _smoothed(np.nan_to_num(normalized))


def token_times(attention: Matrix) -> NDArray[np.intp]:
    """Return the audio position at which each token begins, `[tokens]`.

    Args:
        attention: The mean over heads, normalized, `[tokens, positions]`.
    """
    tokens, positions = _cheapest_path(-attention)
    begins: NDArray[np.intp] = positions[np.concatenate([[True], np.diff(tokens) > 0])]
    return begins


def _smoothed(head: Matrix) -> Matrix:
    """Return the running median over the positions."""
    margin = _MEDIAN_WIDTH // 2
    if head.shape[-1] <= margin:
        return head
    padded = np.pad(head, ((0, 0), (margin, margin)), mode="reflect")
    windows = sliding_window_view(padded, _MEDIAN_WIDTH, axis=-1)
    median: Matrix = np.partition(windows, margin, axis=-1)[..., margin]
    return median


def _cheapest_path(costs: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows and columns of the cheapest path from the first corner to the last, in single steps.

    Computed by anti-diagonals, each of which depends on the two before.
    """
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    step = np.zeros((rows + 1, columns + 1), np.int8)
    total[0, 0] = 0
    for diagonal in range(2, rows + columns + 1):
        row = np.arange(max(1, diagonal - columns), min(rows, diagonal - 1) + 1)
        column = diagonal - row
        ways = np.stack([total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]])
        # Among equal costs, OpenAI's code takes the last one.
        chosen = np.where(
            (ways[0] < ways[1]) & (ways[0] < ways[2]),
            0,
            np.where((ways[1] < ways[0]) & (ways[1] < ways[2]), 1, 2),
        )
        total[row, column] = costs[row - 1, column - 1] + ways[chosen, np.arange(len(row))]
        step[row, column] = chosen
    step[0, :], step[:, 0] = 2, 1
    return _walk_back(step)


def _walk_back(step: NDArray[np.int8]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    row, column = step.shape[0] - 1, step.shape[1] - 1
    path = []
    while row > 0 or column > 0:
        path.append((row - 1, column - 1))
        taken = step[row, column]
        row -= taken != 2
        column -= taken != 1
    rows, columns = np.array(path[::-1]).T
    return rows, columns
