"""Restrictions on batching a model's rows, since some architectures ignore masks or lengths."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.engine.kv_cache.caches import Cache, new_cache


@attrs.frozen
class Batching:
    """The kinds of batching under which a model computes each row as it would alone.

    Args:
        prefill: True if prompts of unequal length may share a prefill pass.
        decode: True if sequences of unequal length may share a decode step; required for a shared prefill.
        reason: Reason for a restriction; empty if there is none.
    """

    prefill: bool = True
    decode: bool = True
    reason: str = ""


def restrict(model: Any, batching: Batching) -> None:
    """Allow or forbid batching of a model's rows.

    Existing caches keep their state.

    Args:
        model: One of mlx-lm's models.
        batching: Batching that the model supports.
    """
    if batching.decode:
        _allow_merging(model)
    else:
        _forbid_merging(model)
    model.prefills_alone = not batching.prefill


def prefills_alone(model: Any) -> bool:
    """Return whether each prompt needs a prefill pass of its own."""
    return getattr(model, "prefills_alone", False)


def new_mergeable_cache(model: Any) -> Cache:
    """Return an empty plain cache that can be merged, even if the model's rows are not batched."""
    restricted = _restriction_of(model)
    return new_cache(model) if restricted is None else restricted.make()


class _UnmergeableCaches:
    """Creates a model's caches without their merge method.

    Args:
        model: Model whose `make_cache` this replaces; removal restores the original.
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
