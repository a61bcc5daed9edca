"""Prefix cache: computed prefixes of prompts for reuse, in memory and in a tier that outlasts the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as GenericSequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import attrs

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache, allocated_tokens
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.text.prefix_cache import kv_tensors
from greenroom.engine.text.prefix_cache.host_tier import StoredTier
from greenroom.engine.text.prefix_cache.memory_tier import MemoryTier, pack
from greenroom.engine.text.prefix_cache.offload import MIN_TOKENS, DiskMatch
from greenroom.engine.text.prefix_cache.restoration import (
    Restoration,
    RestorationSteps,
    Restored,
    insert_stored,
)
from greenroom.engine.text.prompt_features import PrefixKey
from greenroom.engine.text.sequence import Sequence, keys_so_far, prefill_keys
from greenroom.schemas.events.statistics import PrefixCacheStatistics
from greenroom.schemas.logs import get_logger


@attrs.frozen
class CachedPrefix:
    """Cached part of a prompt.

    Args:
        usable: Number of tokens that `restore` would fill in.
        shared: Number of tokens in common with an earlier prompt; more than `usable` if there is no
            checkpoint at that point.
        stored: Whether the tier below memory must be read to restore it.
    """

    usable: int
    shared: int
    stored: bool = False


class PrefixCache:
    """Prefixes in memory, and optionally in a stored tier, from where they are restored via memory.

    An entry is copied out of a sequence's cache once and never written to. If a model has recurrent or
    rotating layers, a prompt can continue only at the end of an entry.

    Args:
        budget: Maximum bytes of memory to hold; 0 disables the cache.
        stored: Tier on disk or in host memory, for prefixes without a salt; None for none.
    """

    def __init__(self, budget: int, stored: StoredTier | None = None) -> None:
        self.memory = MemoryTier(budget)
        self.stored = stored
        self._hits = self._misses = 0

    def statistics(self) -> PrefixCacheStatistics:
        """Return figures since the cache was created."""
        memory = self.memory
        return PrefixCacheStatistics(
            memory.nbytes, memory.buffers, memory.nodes, self._hits, self._misses, memory.evictions
        )

    def match(self, key: PrefixKey, tokens: GenericSequence[int], stateful: bool) -> CachedPrefix:
        """Return the cached part of a prompt; its last token is never included."""
        packed = pack(tokens[:-1])
        match = self.memory.match(key, packed)
        usable = match.usable(stateful).length
        found = self._match_stored(key, packed, usable) or DiskMatch()
        more = found.usable(stateful)
        return CachedPrefix(max(usable, more), max(match.length, found.length), more - usable >= MIN_TOKENS)

    def restore(
        self, key: PrefixKey, tokens: GenericSequence[int], cache: Cache, room: int = 0
    ) -> Restoration:
        """Return a restoration that fills an empty unbatched cache with the longest cached prefix. `room`:
        number of tokens to allocate memory for, if anything is restored.
        """
        return Restoration(self._restore(key, pack(tokens[:-1]), cache, room))

    def insert(
        self,
        key: PrefixKey,
        tokens: GenericSequence[int],
        cache: Cache,
        row: int | None,
        min_tokens: int = 1,
        *,
        unfinished: bool = False,
        continued: bool = False,
    ) -> bool:
        """Copy a cache that holds exactly these tokens, as far as they are not cached yet.

        Args:
            row: Row of a batched cache; None for an unbatched one.
            min_tokens: Minimum number of new tokens worth a copy.
            unfinished: Whether more of the same prompt follows, so that neither states nor files are needed
                yet.

        Returns:
            Whether the prefix is cached now.
        """
        if not self.memory.budget or not kv_tensors.can_cache(cache):
            return False
        self.memory.measure()
        packed, length = pack(tokens), len(tokens)
        stateful = kv_tensors.is_stateful(cache)
        match = self.memory.match(key, packed)
        cached = match.length if unfinished else match.usable(stateful).length
        if length - cached < min_tokens:
            return False
        tree = self.memory.tree(key)
        inserted = self.memory.insert(
            tree,
            packed,
            lambda start, stop: kv_tensors.copy_kv(cache, row, start, stop, length),
            (lambda: kv_tensors.copy_states(cache, row)) if stateful and not unfinished else None,
            continued=continued,
        )
        if inserted and self.stored is not None and key.is_common and not unfinished:
            self.stored.insert(tree, packed, stateful)
        return inserted

    def discard(self) -> None:
        """Release all memory after a crash, and drop what is stored and may be wrong."""
        if self.stored is not None:
            self.stored.drop()
        self.memory.clear()

    def close(self, seconds: float) -> None:
        """Store prefixes for the next load, and release everything. `seconds`: timeout for storing, in
        seconds. Raises RuntimeError: the device has failed; doubtful prefixes are discarded everywhere.
        """
        try:
            if self.stored is not None:
                self.stored.close(self.memory, seconds)
        finally:
            self.memory.clear()

    def _match_stored(self, key: PrefixKey, packed: bytes, usable: int) -> DiskMatch | None:
        """Return the match in the stored tier; None if it cannot exceed the `usable` tokens in memory."""
        if self.stored is None or not key.is_common or len(packed) // 4 - usable < MIN_TOKENS:
            return None
        return self.stored.match(packed, key.origin)

    def _restore(self, key: PrefixKey, packed: bytes, cache: Cache, room: int) -> RestorationSteps:
        stateful = kv_tensors.is_stateful(cache)
        usable = self.memory.match(key, packed).usable(stateful).length
        tier, match = self.stored, self._match_stored(key, packed, usable)
        if tier is not None and match is not None and match.usable(stateful) - usable >= MIN_TOKENS:
            prefix = packed[: match.usable(stateful) * 4]
            yield from insert_stored(tier, self.memory, self.memory.tree(key), prefix, match, stateful)
        found = self.memory.match(key, packed).usable(stateful)
        if not found.length:
            self._misses += 1
            return Restored()
        self._hits += 1
        *before, last = found.path
        self.memory.touch(found.path, last if stateful else None)
        segments = [node.kv for node in before]
        cut = found.length < last.end
        segments.append(kv_tensors.view_kv(last.kv, found.length - last.start) if cut else last.kv)
        states = (last.states if stateful else None) or ()
        pinned = self.memory.pin(found.path)
        try:
            yield from kv_tensors.restore(cache, segments, states, found.length, max(room, found.length))
        finally:
            self.memory.unpin(pinned)
        stored = max(0, found.length - usable)
        return Restored(found.length, stored if tier is not None and tier.is_on_disk else 0)


_MIN_TOKENS = 32  # Least new tokens worth a copy; fewer are recomputed as fast

MIN_TOKENS_RUNNING = 256
"""Least new tokens of a prompt worth a copy before its answer ends, when everything is inserted anyway."""

PART_BYTES = 16 * 1024 * 1024  # Least bytes of a prompt worth a copy before the prompt is complete

_CHECKPOINT_INTERVAL = 512  # Tokens between checkpoints within a prompt, except the first and the last


log = get_logger(__name__)


class PrefixCacheClient:
    """Interface between one model's sequences and the prefix cache. `model`: model; if None, or if its caches
    cannot be copied, nothing is cached.
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
        """Return an empty unbatched cache and the restoration that fills it with the cached prefix. `room`:
        number of tokens to allocate memory for.
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

    def insert_part_of_answer(self, sequence: Sequence, cache: Cache, row: int | None, length: int) -> None:
        """Insert the prompt and the answer so far, if there would be much to copy at the end."""
        added = length - sequence.inserted
        if self._cache is None or sequence.key is None or added < _MIN_TOKENS:
            return
        if added * kv_tensors.bytes_per_token(cache) >= PART_BYTES:
            sequence.inserted = length
            tokens = keys_so_far(sequence)[:length]
            self._insert(sequence, tokens, cache, row, _MIN_TOKENS, unfinished=True)

    def insert_answer(self, sequence: Sequence, cache: Cache, row: int | None, length: int) -> None:
        """Insert the prompt and the answer read so far when its sequence is removed."""
        self._insert(sequence, keys_so_far(sequence)[:length], cache, row, _MIN_TOKENS)

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
        """Insert a prefix; log failures instead of failing the sequence. Raises Exception: A device failure,
        here or in earlier work.
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


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Caching(Protocol):
    prefix_cache: PrefixCache | None


Engine = TypeVar("Engine", bound=_Caching)


def discards_if_raised(
    method: Callable[Concatenate[Engine, Arguments], Result],
) -> Callable[Concatenate[Engine, Arguments], Result]:
    """Discard the engine's cached prefixes if the method raises, which makes the engine unusable."""

    @wraps(method)
    def discarding(engine: Engine, /, *arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return method(engine, *arguments, **named)
        except BaseException:
            if engine.prefix_cache is not None:
                engine.prefix_cache.discard()
            raise

    return discarding
