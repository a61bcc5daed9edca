"""Prefix cache client: decides when the engine reads and writes the cache, and places checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as GenericSequence
from typing import Any

from greenroom.engine.device.device_errors import raise_unless_own
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.growth import allocated_tokens
from greenroom.engine.text.prefix_cache.memory import kv_tensors
from greenroom.engine.text.prefix_cache.prefix_cache import CachedPrefix, PrefixCache
from greenroom.engine.text.prefix_cache.restoration import Restoration
from greenroom.engine.text.sequences.prefix_keys import keys_so_far, prefill_keys
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.schemas.logs import get_logger

_MIN_TOKENS = 32
"""Least new tokens worth a copy; fewer are recomputed as fast."""

MIN_TOKENS_RUNNING = 256
"""Least new tokens of a prompt worth a copy before its answer ends, when everything is inserted anyway."""

PART_BYTES = 16 * 1024 * 1024
"""Least bytes of a prompt worth a copy before the prompt is complete."""

_CHECKPOINT_INTERVAL = 512
"""Tokens between checkpoints within a prompt, except the first and the last."""


log = get_logger(__name__)


class PrefixCacheClient:
    """Interface between one model's sequences and the prefix cache.

    Args:
        model: Model; if None, or if its caches cannot be copied, nothing is cached.
    """

    def __init__(self, model: Any, cache: PrefixCache | None) -> None:
        empty = caches.new_cache(model) if model is not None else []
        usable = cache and cache.memory.budget and empty and kv_tensors.can_cache(empty)
        self._cache = cache if usable else None
        self._stateful = kv_tensors.is_stateful(empty)
        self._model = model

    @property
    def version(self) -> int:
        """Counter that changes whenever `match` might return something else."""
        return self._cache.memory.version if self._cache else 0

    def match(self, sequence: Sequence) -> CachedPrefix:
        """Return the cached prefix of a sequence's prompt, by its lengths; 0 if nothing is cached."""
        if self._cache is None or sequence.key is None:
            return CachedPrefix(0, 0)
        return self._cache.match(sequence.key, prefill_keys(sequence), self._stateful)

    def has_most_of(self, sequence: Sequence) -> bool:
        """Return whether at least half of a sequence's prompt is cached."""
        return 2 * self.match(sequence).usable >= len(sequence.prefill_tokens)

    def restore(self, sequence: Sequence, room: int) -> tuple[Cache, Restoration | None]:
        """Return an empty unbatched cache and the restoration that fills it with the cached prefix.

        Args:
            room: Number of tokens to allocate memory for.
        """
        cache = caches.new_cache(self._model)
        if self._cache is None or sequence.key is None:
            return cache, None
        return cache, self._cache.restore(sequence.key, prefill_keys(sequence), cache, allocated_tokens(room))

    def is_cacheable(self, sequence: Sequence) -> bool:
        """Return whether a sequence's computed prompt is inserted into the cache."""
        return self._cache is not None and sequence.key is not None

    def checkpoints(self, sequence: Sequence, done: int, shared: Iterable[int]) -> tuple[int, ...]:
        """Return the token positions at which prefill pauses so that the cache can be inserted.

        Models with per-token layers only need none, since any part of an entry can be used. For models with
        recurrent or rotating layers, checkpoints lie where earlier prompts diverge, at the end of the first
        turn and of the last, and at intervals in between.

        Args:
            done: Number of computed tokens.
            shared: Lengths of prefixes shared with other prompts, in tokens.
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
        """Return the number of newly cached prompt tokens: all new ones, or 0.

        Prompts with few new tokens, or larger than the budget, are not cached.

        Args:
            cache: KV cache with the first `length` tokens of the prompt, possibly batched.
        """
        new = length - sequence.metrics.cached_tokens
        if self._cache is None or sequence.key is None or new < _MIN_TOKENS:
            return 0
        fits = length * kv_tensors.bytes_per_token(cache) <= self._cache.memory.budget
        return new if fits else 0

    def insert_prompt(self, sequence: Sequence, cache: Cache, row: int | None, length: int) -> None:
        """Insert the first `length` tokens of a prompt while its sequence continues."""
        min_tokens = _MIN_TOKENS if self._stateful else MIN_TOKENS_RUNNING
        self._insert(sequence, prefill_keys(sequence)[:length], cache, row, min_tokens)

    def insert_part(self, sequence: Sequence, cache: Cache, length: int) -> None:
        """Insert the first `length` tokens of an unfinished prompt, if there is much to copy.

        A single copy of a long prompt at its end would stall other streams.
        """
        if self._cache is not None and sequence.key is not None:
            min_tokens = max(_MIN_TOKENS, PART_BYTES // max(1, kv_tensors.bytes_per_token(cache)))
            tokens = prefill_keys(sequence)[:length]
            self._insert(sequence, tokens, cache, None, min_tokens, unfinished=True)

    def insert_part_of_answer(self, sequence: Sequence, cache: Cache, row: int | None) -> None:
        """Insert the prompt and the answer so far, if there would be much to copy at the end."""
        length = len(sequence.prompt) + sequence.generated
        added = length - sequence.inserted
        if self._cache is None or sequence.key is None or added < _MIN_TOKENS:
            return
        if added * kv_tensors.bytes_per_token(cache) >= PART_BYTES:
            sequence.inserted = length
            self._insert(sequence, keys_so_far(sequence), cache, row, _MIN_TOKENS, unfinished=True)

    def insert_answer(self, sequence: Sequence, cache: Cache, row: int | None) -> None:
        """Insert the prompt and the answer read so far when its sequence is removed."""
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
        """Insert a prefix; log failures instead of failing the sequence.

        Raises:
            Exception: A device failure, here or in earlier work.
        """
        if self._cache is None or sequence.key is None:
            return
        continued = sequence.continues
        try:
            self._cache.insert(
                sequence.key, tokens, cache, row, min_tokens, unfinished=unfinished, continued=continued
            )
        except Exception as error:
            raise_unless_own(error)
            log.exception("prefix not cached", request_id=sequence.request_id)
