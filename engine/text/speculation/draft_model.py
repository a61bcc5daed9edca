"""Speculative decoding with a smaller draft model."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.growth import allocated_tokens
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.text.sampling.sampler import Sampler
from greenroom.engine.text.sequences.sequence import Sequence
from greenroom.engine.text.speculation.policy import MAX_DRAFT

_NEAR = 8
"""Most tokens that the draft model may still have to read when it drafts."""

_CHUNK = (16, 512)
"""Least and most prompt tokens that the draft model prefills in one step."""

_EXPECTED_TOKENS = 256
_MAX_SHARE = 0.3
"""Most of the remaining answer's plain decode time that prefill of the draft model may cost, where at most
`_EXPECTED_TOKENS` tokens are assumed to remain.
"""


class DraftModel:
    """A `Drafter` that samples from the draft model's logits with the sequence's own parameters and keys.

    Args:
        model: One of mlx-lm's models, evaluated on this thread; its cache can be trimmed.
        width: Vocabulary size of the target model's logits.
        share: Cost of a draft model token as a fraction of a target model token.

    Attributes:
        nbytes: Reserved size of its KV cache in bytes.
    """

    def __init__(self, model: Any, width: int, share: float) -> None:
        self._model = model
        self._width = width
        self._share = share
        self._size_model = CacheSizeModel.of(model)
        self._allocated = 0
        self.nbytes = 0
        self._sequence: Sequence | None = None
        self._tokens: list[int] = []
        self._cache: Cache = []
        self._read = 0
        self._drafted: mx.array | None = None

    def begin(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._tokens = list(sequence.prompt)
        self._cache = caches.new_cache(self._model)
        self._read = 0
        self._drafted = None
        self._allocated = self.nbytes = 0

    def has_memory(self, reserve: Callable[[int], bool]) -> bool:
        tokens = len(self._tokens) + 2 * MAX_DRAFT
        if tokens <= self._allocated:
            return True
        nbytes = self._size_model.nbytes(1, tokens)
        if not reserve(nbytes):  # the old and new copies briefly coexist
            return False
        self._allocated, self.nbytes = allocated_tokens(tokens), nbytes
        return True

    def add(self, tokens: GenericSequence[int]) -> None:
        if tokens and self._drafted is not None:
            self._trim_rejected(tokens)
        self._tokens += tokens

    def can_draft(self) -> bool:
        return len(self._tokens) - self._read <= _NEAR

    def draft(self, count: int) -> mx.array:
        sequence = self._sequence
        assert sequence is not None
        inputs = mx.array(self._tokens[self._read :], dtype=mx.uint32)[None]
        drafted: list[mx.array] = []
        for place in range(count):
            logits = self._fit(self._model(inputs, cache=self._cache)[:, -1, :])
            token = Sampler([sequence.sampling], [sequence.sampled + place], (sequence,), steps_ahead=1)(
                logits
            )
            drafted.append(token.astype(mx.uint32))
            inputs = drafted[-1][:, None]
        self._read = len(self._tokens) + count - 1
        self._drafted = mx.concatenate(drafted)
        return self._drafted

    def prefill(self) -> bool:
        sequence, behind = self._sequence, len(self._tokens) - self._read
        if sequence is None or behind <= _NEAR:
            return False
        left = min(_EXPECTED_TOKENS, sequence.max_tokens - sequence.sampled)
        if behind * self._share > _MAX_SHARE * left:
            return False
        low, high = _CHUNK
        count = min(behind - 1, max(low, min(high, int(2 / self._share))))
        chunk = self._tokens[self._read : self._read + count]
        self._model(mx.array(chunk, dtype=mx.uint32)[None], cache=self._cache)
        mx.async_eval(caches.state(self._cache))
        self._read += count
        return True

    def reset(self) -> None:
        self._sequence, self._tokens, self._cache, self._read, self._drafted = None, [], [], 0, None
        self._allocated = self.nbytes = 0

    def _trim_rejected(self, tokens: GenericSequence[int]) -> None:
        """Trim rejected draft tokens from the cache."""
        drafted: Any = self._drafted
        self._drafted = None
        read = drafted.tolist()[:-1]  # the last one is not in the cache
        accepted = 0
        while accepted < min(len(read), len(tokens)) and read[accepted] == tokens[accepted]:
            accepted += 1
        caches.trim(self._cache, len(read) - accepted)
        self._read -= len(read) - accepted

    def _fit(self, logits: mx.array) -> mx.array:
        """Pad or cut logits to the target's vocabulary: embedding tables are padded to different sizes."""
        missing = self._width - logits.shape[-1]
        if missing > 0:
            return mx.pad(logits, [(0, 0), (0, missing)], constant_values=mx.array(-mx.inf, logits.dtype))
        return logits[:, : self._width]
