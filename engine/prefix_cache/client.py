"""When the engine reads and writes the prefix cache: what is worth a copy, where prompts have checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import Any

import structlog

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.growth import allocated_tokens
from greenroom.engine.prefix_cache.memory import kv_tensors
from greenroom.engine.prefix_cache.prefix_cache import CachedPrefix, PrefixCache
from greenroom.engine.prefix_cache.restoration import Restoration
from greenroom.engine.sequences.prefix_keys import keys_so_far, prefill_keys
from greenroom.engine.sequences.sequence import Sequence

_MIN_TOKENS = 32
"""New tokens that are worth a copy: fewer are computed again as fast."""

MIN_TOKENS_RUNNING = 256
"""New tokens of a prompt that are worth one before its answer ends, when all of it is inserted together."""

PART_BYTES = 16 * 1024 * 1024
"""Bytes of a prompt that are worth a copy before it is done."""

_CHECKPOINT_INTERVAL = 512
"""Tokens between two checkpoints within a prompt, but for the first and the last."""


log = structlog.get_logger(__name__)


class PrefixCacheClient:
    """The prefix cache as one model's sequences see it.

    Args:
        model: With None, or a model whose caches cannot be copied, nothing is cached.
    """

    def __init__(self, model: Any, cache: PrefixCache | None) -> None:
        empty = caches.new_cache(model) if model is not None else []
        usable = cache and cache.memory.budget and empty and kv_tensors.can_cache(empty)
        self._cache = cache if usable else None
        self._stateful = kv_tensors.is_stateful(empty)
        self._model = model

    @property
    def version(self) -> int:
        """A number that changes whenever `match` might answer otherwise."""
        return self._cache.memory.version if self._cache else 0

    def match(self, sequence: Sequence) -> CachedPrefix:
        """Return how much of a sequence's prompt is cached."""
        if self._cache is None or sequence.key is None:
            return CachedPrefix(0, 0)
        return self._cache.match(sequence.key, prefill_keys(sequence), self._stateful)

    def has_most_of(self, sequence: Sequence) -> bool:
        """Return whether most of a sequence's prompt need not be computed again."""
        return 2 * self.match(sequence).usable >= len(sequence.prefill_tokens)

    def restore(self, sequence: Sequence, room: int) -> tuple[Cache, Restoration | None]:
        """Return an empty plain cache, and what fills it with the cached prefix of a sequence's prompt.

        Args:
            room: Tokens for which it allocates memory.
        """
        cache = caches.new_cache(self._model)
        if self._cache is None or sequence.key is None:
            return cache, None
        return cache, self._cache.restore(sequence.key, prefill_keys(sequence), cache, allocated_tokens(room))

    def is_cacheable(self, sequence: Sequence) -> bool:
        """Return whether what is computed of a sequence's prompt is inserted."""
        return self._cache is not None and sequence.key is not None

    def checkpoints(self, sequence: Sequence, done: int, shared: Iterable[int]) -> tuple[int, ...]:
        """Return where to pause within the rest of a prompt to insert what was computed so far.

        Nowhere for a model of which any part of an entry can be used. For one with recurrent or rotating
        layers: where earlier prompts went other ways, where the first turn ends, where the last one ends, and
        at intervals between.

        Args:
            done: Tokens that are computed.
            shared: Tokens in common with other prompts.
        """
        end = len(sequence.prefill_tokens) - 1
        if self._cache is None or sequence.key is None or not self._stateful:
            return ()
        inner = [checkpoint for checkpoint in sequence.checkpoints if done < checkpoint < end]
        wanted = {*inner[:1], *inner[-1:]}
        last = done
        for checkpoint in inner:
            if checkpoint - last >= _CHECKPOINT_INTERVAL:
                wanted.add(checkpoint)
                last = checkpoint
        wanted |= {count for count in shared if done < count < end}
        chosen: list[int] = []
        for checkpoint in sorted(wanted):
            if checkpoint - (chosen[-1] if chosen else done) >= _MIN_TOKENS:
                chosen.append(checkpoint)
        return tuple(chosen)

    def count_written(self, sequence: Sequence, cache: Cache, length: int) -> int:
        """Return how many tokens of a prompt are kept that were not: all that are new, or none.

        Few new ones are not kept, and of a prompt beyond the budget nothing is.

        Args:
            cache: Holds the first `length` tokens of the prompt, perhaps beside others.
        """
        new = length - sequence.metrics.cached_tokens
        if self._cache is None or sequence.key is None or new < _MIN_TOKENS:
            return 0
        fits = length * kv_tensors.bytes_per_token(cache) <= self._cache.memory.budget
        return new if fits else 0

    def insert_prompt(self, sequence: Sequence, cache: Cache, row: int | None, length: int) -> None:
        """Insert the first `length` tokens of a prompt, which are computed, while its sequence runs on."""
        min_tokens = _MIN_TOKENS if self._stateful else MIN_TOKENS_RUNNING
        self._insert(sequence, prefill_keys(sequence)[:length], cache, row, min_tokens)

    def insert_part(self, sequence: Sequence, cache: Cache, length: int) -> None:
        """Insert the first `length` tokens of a prompt of which more follows, if that is much to copy.

        All of a long prompt at its end would hold up who decodes beside.
        """
        if self._cache is not None and sequence.key is not None:
            min_tokens = max(_MIN_TOKENS, PART_BYTES // max(1, kv_tensors.bytes_per_token(cache)))
            tokens = prefill_keys(sequence)[:length]
            self._insert(sequence, tokens, cache, None, min_tokens, unfinished=True)

    def insert_part_of_answer(self, sequence: Sequence, cache: Cache, row: int | None) -> None:
        """Insert a prompt with as much of its answer as was read, if that is much to copy at its end."""
        length = len(sequence.prompt) + sequence.generated
        added = length - sequence.inserted
        if self._cache is None or sequence.key is None or added < _MIN_TOKENS:
            return
        if added * kv_tensors.bytes_per_token(cache) >= PART_BYTES:
            sequence.inserted = length
            self._insert(sequence, keys_so_far(sequence), cache, row, _MIN_TOKENS, unfinished=True)

    def insert_answer(self, sequence: Sequence, cache: Cache, row: int | None) -> None:
        """Insert a prompt with as much of its answer as was read, when its sequence is removed."""
        self._insert(sequence, keys_so_far(sequence), cache, row, _MIN_TOKENS)

    def _insert(
        self,
        sequence: Sequence,
        tokens: GenericSequence[int],
        cache: Cache,
        row: int | None,
        min_tokens: int,
        *,
        unfinished: bool = False,
    ) -> None:
        """Insert a prefix; one that cannot be inserted costs nobody his answer.

        Raises:
            Exception: What the device has failed with, here or before.
        """
        if self._cache is None or sequence.key is None:
            return
        try:
            self._cache.insert(sequence.key, tokens, cache, row, min_tokens, unfinished=unfinished)
        except Exception as error:
            raise_unless_own(error)
            log.exception("prefix not cached", request_id=sequence.request_id)
