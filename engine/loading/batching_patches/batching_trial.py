"""Whether a model's code can compute several rows at all, and what becomes of it if not."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches

_TRIAL_ROWS = 7
"""Of the trial: no number of heads, which a mask of the wrong shape might match by chance."""


def try_batch(model: Any) -> None:
    """Decode two steps of rows that have different lengths; raise whatever the model raises."""
    short, long = caches.new_cache(model), caches.new_cache(model)
    model(mx.zeros((1, 1), dtype=mx.uint32), cache=short)
    model(mx.zeros((1, 3), dtype=mx.uint32), cache=long)
    batched = caches.merge([short if row % 2 else long for row in range(_TRIAL_ROWS)])
    for _ in range(2):
        mx.eval(model(mx.zeros((_TRIAL_ROWS, 1), dtype=mx.uint32), cache=batched))


def disable_batching(model: Any) -> None:
    """Have the model make caches that cannot be merged."""
    from mlx_lm.models.cache import KVCache

    make = getattr(model, "make_cache", None) or (lambda: [KVCache() for _ in model.layers])

    def without_merge() -> caches.Cache:
        made = list(make())
        for layer in made:
            layer.merge = None
        return made

    model.make_cache = without_merge
