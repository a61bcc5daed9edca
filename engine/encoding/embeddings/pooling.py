"""Pooling of token vectors into one per text. Source: models/Pooling.py of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx


def pool(hidden: mx.array, mask: mx.array, modes: Sequence[str]) -> mx.array:
    """Return one vector for each text, `[rows, modes * hidden]` in float32.

    Args:
        hidden: Hidden states, `[rows, width, hidden]`, padded on the right.
        mask: 1 for tokens that count, `[rows, width]`; a row without any gives zeros.
        modes: Pooling modes, as in `sentence_transformers_config.Pooling`.
    """
    hidden, weights = hidden.astype(mx.float32), mask.astype(mx.float32)[..., None]
    return mx.concatenate([_MODES[mode](hidden, weights) for mode in modes], axis=-1)


def _first(hidden: mx.array, weights: mx.array) -> mx.array:
    return hidden[:, 0]


def _last(hidden: mx.array, weights: mx.array) -> mx.array:
    positions = mx.arange(1, hidden.shape[1] + 1)
    return _token(hidden, mx.argmax(weights[..., 0] * positions, axis=1))


def _token(hidden: mx.array, positions: mx.array) -> mx.array:
    taken: mx.array = mx.take_along_axis(hidden, positions[:, None, None], axis=1)
    return taken[:, 0]


def _max(hidden: mx.array, weights: mx.array) -> mx.array:
    return mx.where(weights > 0, hidden, -1e9).max(axis=1)


def _mean(hidden: mx.array, weights: mx.array) -> mx.array:
    return (hidden * weights).sum(axis=1) / mx.maximum(weights.sum(axis=1), 1e-9)


def _mean_sqrt(hidden: mx.array, weights: mx.array) -> mx.array:
    return (hidden * weights).sum(axis=1) / mx.sqrt(mx.maximum(weights.sum(axis=1), 1e-9))


def _weighted(hidden: mx.array, weights: mx.array) -> mx.array:
    positions = mx.arange(1, hidden.shape[1] + 1).astype(mx.float32)
    return _mean(hidden, weights * positions[None, :, None])


_MODES: dict[str, Callable[[mx.array, mx.array], mx.array]] = {
    "cls": _first,
    "last": _last,
    "max": _max,
    "mean": _mean,
    "mean_sqrt": _mean_sqrt,
    "weighted": _weighted,
}
