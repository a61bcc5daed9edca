"""What a copy takes on this device, before any cache was copied."""

from __future__ import annotations

import time

import mlx.core as mx

_COPIED_BYTES = 16 * 1024 * 1024
_TRIES = 3


def time_copy() -> tuple[int, float]:
    """Return the bytes of a copy into memory that was not used before, and the milliseconds that it takes.

    Of several, the slowest: what is believed to take too long is not tried, and smaller copies correct that.
    """
    source = mx.ones((1, 1, _COPIED_BYTES // 2), dtype=mx.uint8)
    mx.eval(mx.concatenate([source, source[..., :1]], axis=2))  # kernels are compiled when first used
    copies: list[mx.array] = []
    slowest = 0.0
    for _ in range(_TRIES):
        began = time.perf_counter()
        copies.append(mx.concatenate([source, source], axis=2))
        mx.eval(copies[-1])
        slowest = max(slowest, (time.perf_counter() - began) * 1e3)
    return _COPIED_BYTES, slowest
