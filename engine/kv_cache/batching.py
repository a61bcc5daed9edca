"""What rows of a model may be computed together: not every architecture minds masks and lengths."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.engine.kv_cache.caches import Cache, new_cache


@attrs.frozen
class Batching:
    """Whether rows that are computed together come out as each does alone.

    Args:
        prefill: Prompts of unequal length, in one pass.
        decode: Sequences of unequal length, in one step; without it there is no common prefill either.
        reason: What is wrong, if anything is.
    """

    prefill: bool = True
    decode: bool = True
    reason: str = ""


def restrict(model: Any, batching: Batching) -> None:
    """Have a model's rows computed alone where they have to be.

    Args:
        model: One of mlx-lm's.
    """
    if not batching.decode:
        _forbid_merging(model)
    model.prefills_alone = not batching.prefill


def prefills_alone(model: Any) -> bool:
    """Return whether each prompt has to be computed by itself."""
    return getattr(model, "prefills_alone", False)


def _forbid_merging(model: Any) -> None:
    """Have the model make caches that cannot be merged."""
    plain = new_cache(model)
    classes = [type(layer) for layer in plain]
    make = getattr(model, "make_cache", None) or (lambda: [made() for made in classes])

    def without_merge() -> Cache:
        made = list(make())
        for layer in made:
            layer.merge = None
        return made

    model.make_cache = without_merge
