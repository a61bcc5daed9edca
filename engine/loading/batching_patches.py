"""Patches to models of mlx-lm that cannot compute several rows at once as they are."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import structlog

from greenroom.engine.kv_cache import caches

_TRIAL_ROWS = 7
"""Of the trial: no number of heads, which a mask of the wrong shape might match by chance."""

log = structlog.get_logger(__name__)


def patch_for_batching(model: Any) -> None:
    """Patch what is known to be wrong; a model that still fails with several rows decodes each by itself.

    Args:
        model: One of mlx-lm's, with its weights in memory.
    """
    if getattr(model, "model_type", None) == "gemma2":
        for layer in model.layers:
            layer.self_attn = _GroupedHeadsMask(layer.self_attn)
    cache = caches.new_cache(model)
    if not caches.can_batch(cache):
        return
    try:
        _try_batch(model)
    except Exception as error:  # models fail in ways of their own
        log.warning("sequences do not share batches", error=str(error))
        _disable_batching(model)


class _GroupedHeadsMask(nn.Module):  # type: ignore[misc]
    """Gemma 2's attention, which splits heads into groups but not the mask of a batch.

    A mask `[rows, 1, tokens, cached]` met scores `[rows, groups, heads, tokens, cached]`: an error, or, with
    as many rows as groups, each row under another one's mask.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.attention = attention

    def __call__(self, x: mx.array, mask: mx.array | None = None, cache: Any = None) -> mx.array:
        if mask is not None and mask.ndim == 4 and self.attention.repeats > 1:
            mask = mask[:, :, None]
        attended: mx.array = self.attention(x, mask, cache)
        return attended


def _try_batch(model: Any) -> None:
    """Decode two steps of rows that have different lengths."""
    short, long = caches.new_cache(model), caches.new_cache(model)
    model(mx.zeros((1, 1), dtype=mx.uint32), cache=short)
    model(mx.zeros((1, 3), dtype=mx.uint32), cache=long)
    batched = caches.merge([short if row % 2 else long for row in range(_TRIAL_ROWS)])
    for _ in range(2):
        mx.eval(model(mx.zeros((_TRIAL_ROWS, 1), dtype=mx.uint32), cache=batched))


def _disable_batching(model: Any) -> None:
    """Have the model make caches that cannot be merged."""
    from mlx_lm.models.cache import KVCache

    make = getattr(model, "make_cache", None) or (lambda: [KVCache() for _ in model.layers])

    def without_merge() -> caches.Cache:
        made = list(make())
        for layer in made:
            layer.merge = None
        return made

    model.make_cache = without_merge
