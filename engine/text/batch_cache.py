"""The KV cache shared by the sequences of a batch."""

from __future__ import annotations

from collections.abc import Callable, Container
from collections.abc import Sequence as GenericSequence

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import GROWN_AHEAD, GROWTH_STEP, LARGE_BYTES, Cache
from greenroom.engine.kv_cache.size_model import CacheSizeModel, CacheUsage
from greenroom.engine.resources.device_errors import raise_unless_own
from greenroom.engine.text.sequence import CacheTaker, Sequence


class JoinError(Exception):
    """Error if caches of sequences cannot be joined with a batch's cache."""


class BatchCache:
    """KV cache of a batch; the row of a removed sequence stays, as None, until compaction.

    Attributes:
        sequences: Sequences by row of the cache.
        layers: Unbatched layer caches for one row, batched ones for more; empty if nothing is left to
            compute.
        inputs: Next input token of each row, `[rows]` (uint32), possibly in flight.
        has_inputs: Whether the rows hold `inputs` already: a step is launched and not sampled yet.
    """

    def __init__(self, prefilled: PrefilledSequences) -> None:
        self.sequences: list[Sequence | None] = list(prefilled.sequences)
        self.layers = prefilled.cache
        self.inputs = prefilled.inputs
        self.has_inputs = False
        self._copied_bytes = 0

    @property
    def active(self) -> int:
        return len(self.sequences) - self.sequences.count(None)

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return max([sequence.length for sequence in self.sequences if sequence is not None], default=0)

    @property
    def nbytes(self) -> int:
        return caches.size_in_bytes(self.layers)

    @property
    def position_shifts(self) -> tuple[int, ...]:
        """Offset from cache index to position id of each row's next token; empty if all are 0."""
        features = [sequence.features if sequence is not None else None for sequence in self.sequences]
        shifts = tuple(each.position_shift if each is not None else 0 for each in features)
        return shifts if any(shifts) else ()

    def pop_copied_bytes(self) -> int:
        copied, self._copied_bytes = self._copied_bytes, 0
        return copied

    def add(self, prefilled: GenericSequence[PrefilledSequences], *, layerwise: bool = False) -> None:
        """Add sequences with a single copy; the cache must be compacted. Raises JoinError: the sequences
        cannot be added; the cache is unchanged.
        """
        single = [arrival for arrival in prefilled if len(arrival.sequences) == 1]
        batched = [arrival for arrival in prefilled if len(arrival.sequences) > 1]
        try:
            self.layers = self._joined(single, batched, layerwise)
        except Exception as error:
            if layerwise:  # the old cache is gone
                raise
            raise_unless_own(error)
            raise JoinError("the caches do not fit together") from error
        ordered = [*single, *batched]
        self.inputs = mx.concatenate([self.inputs, *(arrival.inputs for arrival in ordered)])
        self.sequences += [sequence for arrival in ordered for sequence in arrival.sequences]
        self._copied_bytes += self.nbytes

    def _joined(
        self,
        single: GenericSequence[PrefilledSequences],
        batched: GenericSequence[PrefilledSequences],
        layerwise: bool,
    ) -> Cache:
        layers = self.layers if layerwise else caches.shallow_copy(self.layers)
        plain = [arrival.cache for arrival in single]
        if len(self.sequences) == 1:
            layers = caches.merge([layers, *plain], layerwise=layerwise)
        elif plain:
            caches.extend(layers, caches.merge(plain, layerwise=layerwise), layerwise=layerwise)
        for arrival in batched:
            caches.extend(layers, arrival.cache, layerwise=layerwise)
        return layers

    def compact(self, *, layerwise: bool = False) -> bool:
        """Copy the cache without the rows of removed sequences; return whether there were any."""
        rows = [row for row, sequence in enumerate(self.sequences) if sequence is not None]
        if len(rows) == len(self.sequences) or not rows:
            return False
        if len(rows) == 1:
            self.layers = caches.extract(self.layers, rows[0], layerwise=layerwise)
        else:
            caches.filter_rows(self.layers, rows, layerwise=layerwise)
        self._copied_bytes += self.nbytes
        self.inputs = self.inputs[mx.array(rows)]
        self.sequences = [self.sequences[row] for row in rows]
        return True

    def split_off(self, sequences: Container[Sequence]) -> PrefilledSequences:
        moving = {
            row: sequence
            for row, sequence in enumerate(self.sequences)
            if sequence is not None and sequence in sequences
        }
        plain = [caches.extract(self.layers, row) for row in moving]
        cache = caches.merge(plain) if len(plain) > 1 else plain[0]
        self._copied_bytes += caches.size_in_bytes(cache)
        for row in moving:
            self.sequences[row] = None
        return PrefilledSequences(tuple(moving.values()), cache, self.inputs[mx.array(list(moving))])

    def detach(self) -> PrefilledSequences:
        """Move all sequences out together with the cache, which must be compacted."""
        sequences = tuple(sequence for sequence in self.sequences if sequence is not None)
        detached = PrefilledSequences(sequences, self.layers, self.inputs)
        self.sequences, self.layers = [None] * len(self.sequences), []
        return detached

    def report_progress(self, sequence: Sequence) -> None:
        """Offer a sequence's partial answer to the prefix cache, if the sequence is still here."""
        if sequence in self.sequences:
            self._offer(sequence, sequence.on_progress)

    def remove(self, row: int) -> None:
        """Remove a sequence; the prefix cache may take its prompt and the tokens read so far."""
        sequence = self.sequences[row]
        if sequence is not None:
            self._offer(sequence, sequence.on_remove)
        self.sequences[row] = None

    def _offer(self, sequence: Sequence, take: CacheTaker | None) -> None:
        """Offer the tokens that a row holds and the host has read, unless they cannot be told from others."""
        held, is_lone = sequence.sampled - (not self.has_inputs), len(self.sequences) == 1
        has_unread = held > sequence.generated and not (is_lone and caches.can_trim(self.layers))
        if take is not None and not has_unread:
            row = None if is_lone else self.sequences.index(sequence)
            take(sequence, self.layers, row, len(sequence.prompt) + min(held, sequence.generated))

    def discard(self, sequence: Sequence) -> None:
        """Remove a preempted sequence, without offering it to the prefix cache."""
        self.sequences[self.sequences.index(sequence)] = None
        if self.active == 0:
            self.layers = []


class CacheGrowth:
    """Caches the measured size of a KV cache until it changes or its allocated memory is full."""

    def __init__(self, cache: BatchCache) -> None:
        self._cache = cache
        self._usage: CacheUsage | None = None
        self._advanced = 0

    def usage(self, size_model: CacheSizeModel) -> CacheUsage:
        """Return the cache's usage, measured again only after a change."""
        if self._usage is None:
            rows = len(self._cache.sequences)
            self._usage, self._advanced = CacheUsage.of(self._cache.layers, rows, size_model), 0
        return self._usage

    def is_due(self, size_model: CacheSizeModel, lookahead: int = 0) -> bool:
        """Return whether the next step, with `lookahead` draft tokens, must grow the cache."""
        return bool(self._cache.active) and self._free_tokens(size_model) <= lookahead

    def grow(self, lookahead: int = 0) -> None:
        """Grow the cache for the next steps, one layer at a time, to limit peak memory."""
        caches.grow(caches.layers_to_grow(self._cache.layers, lookahead), GROWTH_STEP)
        self.invalidate()

    def grow_ahead(self, size_model: CacheSizeModel, lookahead: int, reserve: Callable[[int], bool]) -> None:
        """Grow a large cache ahead of time, a few layers per step, so that no step takes long. `lookahead`:
        draft tokens of the next step; `reserve`: reserves bytes for the copies; returns whether they fit.
        """
        if not self.is_due(size_model, GROWN_AHEAD) or self.usage(size_model).copied < LARGE_BYTES:
            return
        layers = caches.layers_to_grow(self._cache.layers, GROWN_AHEAD)
        count = -(-len(layers) // max(1, self._free_tokens(size_model) - lookahead))
        if count < len(layers) and reserve(count * self.usage(size_model).largest_layer):
            caches.grow(layers[:count], GROWTH_STEP, wait=False)
            self.invalidate()

    def advance(self, tokens: int) -> None:
        """Count tokens added to every row."""
        self._advanced += tokens
        if self._usage is not None and self._advanced > self._usage.free_tokens:
            self._usage = None

    def invalidate(self) -> None:
        """Discard the measured usage: the cache was copied, grown or trimmed."""
        self._usage = None

    def _free_tokens(self, size_model: CacheSizeModel) -> int:
        return self.usage(size_model).free_tokens - self._advanced


@attrs.frozen(eq=False)
class PrefilledSequences:
    """Sequences whose tokens are all cached except the last ones, which are the next inputs.

    Args:
        cache: Unbatched cache for one sequence, batched for more.
        inputs: Next input tokens, `[rows]` (uint32), possibly in flight; by default the prompts' last tokens.
    """

    sequences: tuple[Sequence, ...]
    cache: Cache
    inputs: mx.array = attrs.field()

    @inputs.default
    def _last_of_prompts(self) -> mx.array:
        return mx.array([sequence.prefill_tokens[-1] for sequence in self.sequences], dtype=mx.uint32)

    @property
    def batchable(self) -> bool:
        """True if the sequences can share a cache with others."""
        return len(self.sequences) > 1 or caches.can_batch(self.cache)

    @property
    def row_bytes(self) -> int:
        return caches.size_in_bytes(self.cache) // len(self.sequences)

    def without(self, sequence: Sequence) -> PrefilledSequences | None:
        """Return the other sequences, or None if there are none; the cache may be changed in place."""
        kept_rows = [row for row, member in enumerate(self.sequences) if member is not sequence]
        if len(kept_rows) == len(self.sequences):
            return self
        if not kept_rows:
            return None
        kept, inputs = tuple(self.sequences[row] for row in kept_rows), self.inputs[mx.array(kept_rows)]
        if len(kept_rows) == 1:
            return PrefilledSequences(kept, caches.extract(self.cache, kept_rows[0]), inputs)
        caches.filter_rows(self.cache, kept_rows)
        return PrefilledSequences(kept, self.cache, inputs)
