"""When the batch loop reads and writes the prefix cache: what is worth a copy, and where prompts are cut."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.prefix_cache.memory import layers
from greenroom.engine.prefix_cache.prefix_cache import CachedPrefix, PrefixCache
from greenroom.engine.sequences.sequence import Sequence

_LEAST = 32
"""New tokens that are worth a copy: fewer are computed again as fast."""

LEAST_WHILE_RUNNING = 256
"""New tokens of a prompt that are worth one before its answer ends, when all of it is kept together."""

_STRIDE = 512
"""Tokens between two places within a prompt where a state is kept, but for the first and the last."""


class PrefixCacheClient:
    """The prefix cache as one model's rows see it.

    Args:
        model: None, or one whose caches cannot be kept, remembers nothing.
    """

    def __init__(self, model: Any, cache: PrefixCache | None) -> None:
        empty = caches.new_cache(model) if model is not None else []
        self._cache = cache if cache and cache.memory.budget and empty and layers.can_keep(empty) else None
        self._states = layers.has_states(empty)
        self._model = model

    @property
    def version(self) -> int:
        """Changes whenever `known` might answer otherwise."""
        return self._cache.memory.version if self._cache else 0

    def known(self, row: Sequence) -> CachedPrefix:
        """How much of a row's prompt need not be computed."""
        if self._cache is None or row.key is None:
            return CachedPrefix(0, 0)
        return self._cache.known(row.key, row.inputs, self._states)

    def begin(self, row: Sequence) -> tuple[Cache, int]:
        """A plain cache for a row, filled as far as its prompt is known, and how far that is."""
        cache = caches.new_cache(self._model)
        if self._cache is None or row.key is None:
            return cache, 0
        return cache, self._cache.restore(row.key, row.inputs, cache)

    def remembers(self, row: Sequence) -> bool:
        """Whether what is computed of a row's prompt is kept for others."""
        return self._cache is not None and row.key is not None

    def stops(self, row: Sequence, done: int, shared: Iterable[int]) -> tuple[int, ...]:
        """Where to pause within the rest of a prompt, because what was computed so far is to be kept.

        Nothing where any part of what is kept can be used. Where it cannot: where earlier prompts went
        other ways, where the first turn ends, where the last one ends, and now and then between.

        Args:
            shared: Tokens in common with other prompts.
        """
        end = len(row.inputs) - 1
        if self._cache is None or row.key is None or not self._states:
            return ()
        inner = [border for border in row.checkpoints if done < border < end]
        wanted = {*inner[:1], *inner[-1:]}
        last = done
        for border in inner:
            if border - last >= _STRIDE:
                wanted.add(border)
                last = border
        wanted |= {count for count in shared if done < count < end}
        chosen: list[int] = []
        for stop in sorted(wanted):
            if stop - (chosen[-1] if chosen else done) >= _LEAST:
                chosen.append(stop)
        return tuple(chosen)

    def keep_prompt(self, row: Sequence, cache: Cache, index: int | None, length: int) -> None:
        """Keep a prompt that is computed up to `length`, while its row goes on."""
        least = _LEAST if self._states else LEAST_WHILE_RUNNING
        self._store(row, row.inputs[:length], cache, index, least)

    def keep_answer(self, row: Sequence, cache: Cache, index: int | None) -> None:
        """Keep a prompt with as much of its answer as was read, when its row leaves."""
        self._store(row, (*row.prompt, *row.answer), cache, index, _LEAST)

    def _store(
        self, row: Sequence, tokens: GenericSequence[int], cache: Cache, index: int | None, least: int
    ) -> None:
        if self._cache is not None and row.key is not None:
            self._cache.store(row.key, tokens, cache, index, least)
