"""Drafts by a second, smaller model that reads the same tokens."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.kv_cache.growth import allocated_tokens
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.sampling.sampler import Sampler
from greenroom.engine.sequences.sequence import Sequence
from greenroom.engine.speculation.policy import DRAFT_LENGTHS, WORTHWHILE, SpeculationPolicy

_NEAR = 8
"""Tokens that the model may have yet to read when it drafts."""

_SLICE = (16, 512)
_FORESEEN = 256
"""Tokens of the rest of an answer for which reading a prompt has to pay."""


class DraftModel:
    """Reads along and guesses on, drawing as the row would: by the same keys, from its own logits.

    Args:
        model: One of mlx-lm's models, evaluated on this thread; its cache can be trimmed.
        width: Logits of the model that answers.
        share: What one of this model's tokens costs, as a part of what one of the other's does.

    Attributes:
        nbytes: What its cache takes at most, until it has more room.
    """

    guesses = (0.7,)

    def __init__(self, model: Any, width: int, share: float) -> None:
        self._model = model
        self._width = width
        self._share = share
        self._footprint = CacheSizeModel.of(model)
        self._room = 0
        self.nbytes = 0
        self._row: Sequence | None = None
        self._tokens: list[int] = []
        self._cache: Cache = []
        self._read = 0
        self._drafted: mx.array | None = None

    def begin(self, row: Sequence) -> None:
        """Draft for this row from now on."""
        self._row = row
        self._tokens = list(row.prompt)
        self._cache = caches.new_cache(self._model)
        self._read = 0
        self._drafted = None
        self._room = self.nbytes = 0

    def has_memory(self, lend: Callable[[int], bool]) -> bool:
        """Whether there is memory to read all that was said, and to draft."""
        tokens = len(self._tokens) + 2 * DRAFT_LENGTHS[-1]
        if tokens <= self._room:
            return True
        nbytes = self._footprint.nbytes(1, tokens)
        if not lend(nbytes):  # what grows is there twice for a moment
            return False
        self._room, self.nbytes = allocated_tokens(tokens), nbytes
        return True

    def add(self, tokens: GenericSequence[int]) -> None:
        """The answer has gone on, with what was drafted or otherwise."""
        if tokens and self._drafted is not None:
            self._take_back(tokens)
        self._tokens += tokens

    def propose(self) -> int | None:
        """There is one kind of draft, which can be made once most of the text was read."""
        return 0 if len(self._tokens) - self._read <= _NEAR else None

    def draft(self, count: int) -> mx.array:
        """The next tokens by this model, `[count]`; not evaluated."""
        row = self._row
        assert row is not None
        inputs = mx.array(self._tokens[self._read :], dtype=mx.uint32)[None]
        drafted: list[mx.array] = []
        for place in range(count):
            logits = self._fit(self._model(inputs, cache=self._cache)[:, -1, :])
            token = Sampler([row.sampling], [row.sampled + place], (row,), steps_ahead=1)(logits)
            drafted.append(token.astype(mx.uint32))
            inputs = drafted[-1][:, None]
        self._read = len(self._tokens) + count - 1
        self._drafted = mx.concatenate(drafted)
        return self._drafted

    def prefill(self, policy: SpeculationPolicy) -> bool:
        """Read a slice of what was not read, if drafts are likely to save more than that costs."""
        behind = len(self._tokens) - self._read
        if behind <= _NEAR or not self._is_worth(behind * self._share, policy):
            return False
        low, high = _SLICE
        count = min(behind - 1, max(low, min(high, int(2 / self._share))))
        piece = self._tokens[self._read : self._read + count]
        self._model(mx.array(piece, dtype=mx.uint32)[None], cache=self._cache)
        mx.async_eval(caches.state(self._cache))
        self._read += count
        return True

    def reset(self) -> None:
        """Free the row's cache."""
        self._row, self._tokens, self._cache, self._read, self._drafted = None, [], [], 0, None
        self._room = self.nbytes = 0

    def _is_worth(self, steps: float, policy: SpeculationPolicy) -> bool:
        row = self._row
        gain = policy.gain(0)
        if row is None or gain <= WORTHWHILE:
            return policy.spend(steps)
        return steps <= (1 - 1 / gain) * min(_FORESEEN, row.max_tokens - row.sampled)

    def _take_back(self, tokens: GenericSequence[int]) -> None:
        """Forget what was drafted and has not become the answer."""
        drafted: Any = self._drafted
        self._drafted = None
        guessed = drafted.tolist()[:-1]  # the last one was not read
        right = 0
        while right < min(len(guessed), len(tokens)) and guessed[right] == tokens[right]:
            right += 1
        caches.trim(self._cache, len(guessed) - right)
        self._read -= len(guessed) - right

    def _fit(self, logits: mx.array) -> mx.array:
        """Logits of the same tokens as the other model's: tables are padded to different sizes."""
        missing = self._width - logits.shape[-1]
        if missing > 0:
            return mx.pad(logits, [(0, 0), (0, missing)], constant_values=mx.array(-mx.inf, logits.dtype))
        return logits[:, : self._width]
