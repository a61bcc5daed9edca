"""Measurement of the device's copy speed, made before any KV cache has been copied."""

from __future__ import annotations

import time

import mlx.core as mx

_COPIED_BYTES = 16 * 1024 * 1024
_TRIES = 3


def time_copy() -> tuple[int, float]:
    """Time copies into fresh memory; return the bytes of a copy and the milliseconds of the slowest.

    The slowest is the safe choice: copies that look too slow are never tried, whereas an estimate that is too
    high is corrected by later, smaller copies.
    """
    source = mx.ones((1, 1, _COPIED_BYTES // 2), dtype=mx.uint8)
    mx.eval(mx.concatenate([source, source[..., :1]], axis=2))  # compiles the kernels
    copies: list[mx.array] = []
    slowest = 0.0
    for _ in range(_TRIES):
        began = time.perf_counter()
        copies.append(mx.concatenate([source, source], axis=2))
        mx.eval(copies[-1])
        slowest = max(slowest, (time.perf_counter() - began) * 1e3)
    return _COPIED_BYTES, slowest
