"""Drafts of the next tokens, by a smaller model or from the prompt, and their verification."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as GenericSequence
from typing import Any

import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache, allocated_tokens
from greenroom.engine.kv_cache.size_model import CacheSizeModel
from greenroom.engine.text.sampler import LogprobScorer, Sampler, Scored
from greenroom.engine.text.sampling_parameters import mark_broken, split_marks
from greenroom.engine.text.sequence import Sequence

_NEAR = 8  # Most tokens that the draft model may still have to read when it drafts

_CHUNK = (16, 512)  # Least and most prompt tokens that the draft model prefills in one step

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


_NGRAM = 3  # Number of last tokens that must match

_AT_ONCE = 512  # Prompt tokens indexed per step, so that a long prompt delays no step


class PromptLookup:
    """Drafts the tokens that followed the latest earlier occurrence of the last tokens.

    Takes constant time per token.
    """

    nbytes = 0

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._places: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def has_memory(self, reserve: Callable[[int], bool]) -> bool:
        return True

    def begin(self, sequence: Sequence) -> None:
        self.reset()
        self._tokens = list(sequence.prompt)

    def add(self, tokens: GenericSequence[int]) -> None:
        self._tokens += tokens
        end = min(len(self._tokens), self._indexed + _AT_ONCE)
        # The last n-gram has no continuation yet, so it is not indexed.
        for place in range(max(self._indexed, _NGRAM), end):
            self._places[tuple(self._tokens[place - _NGRAM : place])] = place
        self._indexed = max(self._indexed, end)

    def can_draft(self) -> bool:
        return self._place() is not None

    def draft(self, count: int) -> mx.array:
        return mx.array(self.lookup(count), dtype=mx.uint32)

    def lookup(self, count: int) -> list[int]:
        """Return the tokens after the latest match; at the end of the text, go on at the match again."""
        place, tokens, length = self._place(), self._tokens, len(self._tokens)
        drafted: list[int] = []
        for at in range(place, place + count) if place is not None else ():
            drafted.append(tokens[at] if at < length else drafted[at - length])
        return drafted

    def prefill(self) -> bool:
        return False

    def reset(self) -> None:
        self._tokens, self._places, self._indexed = [], {}, 0

    def _place(self) -> int | None:
        """Return the index after the latest earlier match of the last tokens; None without a match."""
        if self._indexed < len(self._tokens):
            return None
        return self._places.get(tuple(self._tokens[-_NGRAM:]))


# Speculation policy: drafts only while that yields more tokens per millisecond than plain steps.
#
# The draft length follows the heuristic of Hugging Face's assisted generation: two more after a fully
# accepted draft, one less after any other.

MAX_DRAFT = 16  # Most tokens in a draft

_FIRST_DRAFT = 2
_SMOOTHING = 0.25  # Weight of the latest measurement in the moving average
_MAX_OUTLIER = 4.0  # Multiple of the average at which single measurements are clipped
_MIN_WEIGHT = 0.1  # Minimum weight of the latest draft in the averages by which drafts are judged
_TRIAL = 4  # Number of drafts in a trial; the first pass of each length also compiles kernels for later ones
_WORTHWHILE = 1.03  # Minimum speedup over plain steps that drafts must reach
_MIN_PAUSE, _MAX_PAUSE = 64, 512
"""Plain steps between two trials; doubled after each failed trial."""
_REMEASURE = 128  # Successive drafts after which a few plain steps are timed again
_REMEASURED = 4


class SpeculationPolicy:
    """Tries drafts, continues while they pay off, and pauses for longer after each failed trial.

    A stream for which drafts never pay off loses a few slow steps of every 500.

    Attributes:
        step_ms: Milliseconds of a plain step; None before the first measurement.
    """

    def __init__(self) -> None:
        self.step_ms: float | None = None
        self._length = _FIRST_DRAFT
        self._pause, self._next_pause = 0, _MIN_PAUSE
        self._drafts = self._since_plain = 0
        self._overhead_ms = 0.0
        self._tokens = self._ms = 0.0

    @property
    def paused(self) -> bool:
        """True if no draft should be made now."""
        return self.step_ms is None or self._pause > 0

    def draft_length(self, most: int) -> int:
        """Return the number of tokens to draft; 0 for a plain step. `most`: number of tokens that the
        sequence can still use.
        """
        return 0 if self.paused else max(0, min(self._length, most))

    def record_step(self, milliseconds: float) -> None:
        """Record a pipelined plain step, launched while the previous one was in flight."""
        if self.step_ms is None:
            self.step_ms = milliseconds
        shown = min(milliseconds, _MAX_OUTLIER * self.step_ms)
        self.step_ms += _SMOOTHING * (shown - self.step_ms)
        self._since_plain = 0
        self._pause = max(0, self._pause - 1)

    def record_unpipelined(self, milliseconds: float) -> None:
        """Record a plain step that waited for the previous token, in the hope of a draft."""
        if self.step_ms is None:
            return
        self._overhead_ms += min(milliseconds, _MAX_OUTLIER * self.step_ms) - self.step_ms
        if self._overhead_ms > _MAX_OUTLIER * self.step_ms:  # too many waits without a draft
            self._stop()

    def record_draft(self, drafted: int, accepted: int, milliseconds: float | None) -> None:
        """Record a verified draft, which also yields the token after the accepted ones. `milliseconds`: time
        from the previous token to the arrival of these; None if not measured.
        """
        longer = drafted + 2 if accepted == drafted else drafted - 1
        self._length = max(1, min(MAX_DRAFT, longer))
        self._since_plain += 1
        if milliseconds is None or self.step_ms is None:
            return
        limit = (_MAX_OUTLIER + drafted) * self.step_ms
        milliseconds = min(milliseconds, limit) + max(0.0, self._overhead_ms)
        self._overhead_ms = 0.0
        weight = max(1 / (self._drafts + 1), _MIN_WEIGHT)
        self._tokens += weight * (1 + accepted - self._tokens)
        self._ms += weight * (milliseconds - self._ms)
        self._drafts += 1
        if self._drafts < _TRIAL:
            return
        if self._tokens * self.step_ms < _WORTHWHILE * self._ms:
            self._stop()
        elif self._since_plain >= _REMEASURE:
            self._pause = _REMEASURED
        elif self._drafts > 4 * _TRIAL:
            self._next_pause = _MIN_PAUSE

    def _stop(self) -> None:
        self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _MAX_PAUSE)
        self._length, self._drafts, self._overhead_ms = _FIRST_DRAFT, 0, 0.0


class Verification:
    """Pass over draft tokens that samples at every position exactly as plain steps would, with the same keys.

    So the accepted tokens are those that would have been sampled without drafts, greedily or not.

    Args:
        drafts: Draft tokens, `[drafted]` (uint32), possibly in flight.
        logits: Logits after the sequence's last token and after each draft token, `[drafted + 1,
            vocabulary]`.

    Attributes:
        broken: Positions with non-finite logits, set by `tokens`.
    """

    def __init__(self, sequence: Sequence, drafts: mx.array, logits: mx.array) -> None:
        places = drafts.shape[0] + 1
        positions = [sequence.sampled + place for place in range(places)]
        sample = Sampler([sequence.sampling] * places, positions, (sequence,) * places, steps_ahead=1)
        self.sequence = sequence
        self.drafts = drafts
        self.scores: Scored | None = None
        self._sampled = sample(logits)
        self._marked = mark_broken(self._sampled, logits)
        self.broken: frozenset[int] = frozenset()
        mx.async_eval(self._marked, drafts)
        if sequence.logprobs is not None:
            scorer = LogprobScorer(dict.fromkeys(range(places), sequence.logprobs.top), places)
            self.scores = scorer, scorer.score(scorer.prepare(logits), self._sampled)
            mx.async_eval(self.scores[1])

    def tokens(self) -> list[int]:
        """Wait for the samples; return the accepted draft tokens and the token sampled after them."""
        marked: Any = self._marked.tolist()
        sampled, self.broken = split_marks(marked)
        drafted: Any = self.drafts.tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == sampled[accepted]:
            accepted += 1
        return sampled[: accepted + 1]


def can_verify(sequence: Sequence) -> bool:
    """Return whether a sequence's sampling is independent of unverified draft tokens."""
    return sequence.matcher is None and not sequence.sampling.has_penalties
