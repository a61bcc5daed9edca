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
    """Have a model's rows computed alone where they have to be, and together where they need not.

    Caches that were made before stay as they are.

    Args:
        model: One of mlx-lm's.
    """
    if batching.decode:
        _allow_merging(model)
    else:
        _forbid_merging(model)
    model.prefills_alone = not batching.prefill


def prefills_alone(model: Any) -> bool:
    """Return whether each prompt has to be computed by itself."""
    return getattr(model, "prefills_alone", False)


def new_mergeable_cache(model: Any) -> Cache:
    """Return an empty plain cache that can be merged, even of a model whose rows are computed alone."""
    restricted = _restriction_of(model)
    return new_cache(model) if restricted is None else restricted.make()


class _UnmergeableCaches:
    """Makes a model's caches, without what merges them.

    Args:
        model: What it made them with before is uncovered again once this is removed.
    """

    def __init__(self, model: Any) -> None:
        self.covered = vars(model).get("make_cache")
        self._classes = [type(layer) for layer in new_cache(model)]
        self._make = getattr(model, "make_cache", None)

    def __call__(self) -> Cache:
        made = self.make()
        for layer in made:
            layer.merge = None
        return made

    def make(self) -> Cache:
        """Return a cache as the model makes it by itself."""
        return list(self._make() if self._make is not None else (made() for made in self._classes))


def _restriction_of(model: Any) -> _UnmergeableCaches | None:
    make = getattr(model, "make_cache", None)
    return make if isinstance(make, _UnmergeableCaches) else None


def _forbid_merging(model: Any) -> None:
    if _restriction_of(model) is None:
        model.make_cache = _UnmergeableCaches(model)


def _allow_merging(model: Any) -> None:
    restricted = _restriction_of(model)
    if restricted is not None:
        del model.make_cache
        if restricted.covered is not None:
            model.make_cache = restricted.covered
