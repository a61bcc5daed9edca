"""Batch-invariance check: compares batched rows with rows computed alone, using the model's own weights.

Padding must not change anything, so a padded row must agree to the last bits with the same row without
padding, whatever the model's precision. But kernels round differently for few rows than for many, and a deep
model amplifies the smallest difference to 0.01 to 0.2 of the logits' standard deviation. So the unpadded row
is repeated within one pass that has as many tokens in all as the padded pass, and everything else is equal
too:

- there are enough short rows that a block which is cut at their ends (`RaggedRows`) also computes many rows;
- left-padded rows have fewer tokens than the 32 lanes in which GPUs add them up, so that the order of
  summation is the same.

The padding is no multiple of the block sizes into which a cache may be cut. Over mlx-lm's architectures this
measured 0.04 to 1.6 for wrong ones and 0 for correct ones. The exception is dbrx, whose experts are separate
matrices, each of which has as many rows as tokens happen to be routed to it.

The check consists of passes, each of which can run whenever there is time for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Cache, new_mergeable_cache
from greenroom.engine.loading.batching_table import CheckResults
from greenroom.engine.resources.device_errors import raise_unless_own, synchronize_streams

SAME = 1e-3  # Largest distance of rows that differ only in padding, in standard deviations of the logits

ASTRAY = 1.0
"""Largest distance of a batched row from the row computed alone. Unrelated logits are 1.4 apart, and rounding
made 0.46 in tiny models. Faults of every batch, padded or not, show only in this distance.
"""

_LENGTHS = (19, 28)  # Tokens of the prompts, of which all but the last are prefilled

_STEPPED = 3  # Number of rows decoded together

_PREFILLED = 4  # Number of rows prefilled together; their short part alone has more than 64 tokens

_ALIKE = _PREFILLED * (_LENGTHS[1] - 1) // (_LENGTHS[0] - 1)
"""Number of short rows with as many tokens in all as the rows padded to the long prompt."""

_FIRST = 3  # Only token of a third prompt, whose cache is empty

ROWS, TOKENS = max(2 * _STEPPED, _ALIKE), max(_LENGTHS)
"""Most rows whose caches exist at once, and tokens of the longest row."""

_Passes = Generator["_Pass", mx.array, str]
"""Generator of passes that is sent the logits of each pass's last tokens and returns the fault, if any."""


@attrs.define(eq=False)
class _Pass:
    """Tokens `[rows][tokens]` for the model; a single row may be computed in pieces."""

    tokens: list[list[int]]
    cache: Cache


@attrs.define(eq=False)
class _Row:
    """A prompt, the cache of all but its last token, and the next logits when it is computed alone."""

    prompt: list[int]
    cache: Cache
    logits: mx.array = attrs.field(factory=lambda: mx.zeros(0))


class InvarianceCheck:
    """Finds out whether a model's rows may be batched, one pass at a time.

    Args:
        model: Model with its weights in memory, whose caches can be merged unless restricted.
        first_pass: Seconds that a pass of one token took.
        clock: Clock in seconds, with any origin.

    Attributes:
        results: Results so far.
        seconds: Total seconds of all passes.
        failed: True if the check ended in an exception; the same exception may hit other checks.
    """

    def __init__(
        self,
        model: Any,
        results: CheckResults | None = None,
        first_pass: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.results = results or CheckResults()
        self.seconds = 0.0
        self.failed = False
        self._model = model
        self._clock = clock
        self._costs = PassCosts(first_pass)
        self._passes = self._checks()
        self._next: _Pass | None = None

    def run(self, seconds: float) -> None:
        """Run the passes that fit into a time limit, as predicted from earlier ones."""
        end = self._clock() + seconds
        while not self.results.complete and self.predict(left := end - self._clock()) <= left:
            self.advance(left)

    def predict(self, seconds: float) -> float:
        """Return the predicted seconds of the next pass, or of the piece of it that fits into `seconds`."""
        if self._next is None:
            return self._costs.predict(1)
        return self._costs.predict(len(self._next.tokens) * self._width(self._next, seconds))

    def advance(self, seconds: float) -> None:
        """Compute the next pass, or the piece of it that fits into `seconds`, but at least one token. Raises
        RuntimeError: the device has failed, which says nothing about the model.
        """
        began = self._clock()
        try:
            due = self._next or next(self._passes)
            width = self._width(due, seconds)
            piece = [row[:width] for row in due.tokens]
            logits: mx.array = self._model(mx.array(piece), cache=due.cache)[:, -1].astype(mx.float32)
            mx.eval(logits, caches.state(due.cache))
            synchronize_streams()
            self._costs.observe(len(piece) * width, self._clock() - began)
            due.tokens = [row[width:] for row in due.tokens]
            self._next = due if due.tokens[0] else self._passes.send(logits)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # models may also fail by exit() or Rust panics
            raise_unless_own(error)
            self._next = None
            if not self.results.complete:
                self.failed = True
                self._found(f"{type(error).__name__}: {error}")
                self.pause()
        self.seconds += self._clock() - began

    def pause(self) -> None:
        """Release the caches; unfinished checks start again with the next pass."""
        self._passes.close()
        self._passes, self._next = self._checks(), None

    def _width(self, due: _Pass, seconds: float) -> int:
        width = len(due.tokens[0])
        return width if len(due.tokens) > 1 else self._costs.fitting(width, seconds)

    def _checks(self) -> Generator[_Pass, mx.array, None]:
        rows = yield from _rows(self._new_cache)
        if self.results.decode is None:
            self._found((yield from _decoding_fault(rows)))
        else:
            yield from _last_tokens(rows)
        if not self.results.complete:
            self._found((yield from _prefilling_fault(self._new_cache, rows)))

    def _found(self, fault: str) -> None:
        if self.results.decode is None:
            self.results = CheckResults(False if fault else None, not fault, fault)
        else:
            self.results = CheckResults(not fault, True, fault)

    def _new_cache(self) -> Cache:
        return new_mergeable_cache(self._model)


def distance(logits: mx.array, wanted: mx.array) -> float:
    """Return the RMS distance of logits in standard deviations of the wanted ones; infinite for NaN."""
    wanted = wanted.astype(mx.float32)
    squares = mx.mean((logits.astype(mx.float32) - wanted) ** 2)
    apart = float(mx.sqrt(squares) / mx.maximum(mx.std(wanted), 1e-30))
    return apart if apart == apart else float("inf")


def _rows(new_cache: Callable[[], Cache]) -> Generator[_Pass, mx.array, list[_Row]]:
    logits = (yield _Pass([[_FIRST]], new_cache()))[0]
    yield _Pass([[_FIRST, _FIRST]], new_cache())  # measures the cost of more tokens
    rows = [_Row([_FIRST], new_cache(), logits)]
    for length in _LENGTHS:
        prompt = [
            _FIRST + (at * at * 7919 + at * 104729) % (logits.size - _FIRST) for at in range(length, 0, -1)
        ]
        cache = new_cache()
        yield _Pass([prompt[:-1]], cache)
        rows.append(_Row(prompt, cache))
    return rows


def _last_tokens(rows: list[_Row]) -> Generator[_Pass, mx.array, None]:
    for row in rows[1:]:
        row.logits = (yield _Pass([row.prompt[-1:]], row.cache))[0]
        row.cache = []


def _decoding_fault(rows: list[_Row]) -> _Passes:
    together = yield _Pass([[row.prompt[-1]] for row in rows], caches.merge([row.cache for row in rows]))
    alike = []
    for row in rows:
        alike.append((yield from _repeated_step(row)))
    yield from _last_tokens(rows)
    return _fault("decoded", together, alike, rows)


def _repeated_step(row: _Row) -> Generator[_Pass, mx.array, mx.array]:
    """Return a row's logits in a batch of copies of that row, which needs no padding."""
    repeated: mx.array = yield _Pass([row.prompt[-1:]] * _STEPPED, caches.merge([row.cache] * _STEPPED))
    return repeated[0]


def _prefilling_fault(new_cache: Callable[[], Cache], rows: list[_Row]) -> _Passes:
    """Check prefill of prompts of unequal length; return the fault, or an empty string.

    Two of the rows differ only in their padding tokens. Long rows are compared only with the same rows
    computed alone: where blocks are cut at the ends of shorter rows, long rows are computed in pieces, which
    rounds differently.
    """
    _, short, long = rows
    batch, pads = (short, short, long, short), (short.prompt[-1], long.prompt[0])
    padded = yield from _prefilled(new_cache, batch, pads)
    apart = distance(padded[0], padded[1])
    if not apart <= SAME:
        return f"prefilled together, padding moves logits by {apart:.2g} of their spread"
    alike = yield from _prefilled(new_cache, [short] * _ALIKE)
    return _fault("prefilled", padded, [alike[0], alike[0]], batch)


def _prefilled(
    new_cache: Callable[[], Cache], rows: Sequence[_Row], pads: Sequence[int] = ()
) -> Generator[_Pass, mx.array, mx.array]:
    """Prefill rows in one pass and return the logits of the first `_PREFILLED` of them. `pads`: padding
    tokens of the first rows; the others are padded with their own last token.
    """
    prompts = [row.prompt[:-1] for row in rows]
    lengths = [len(prompt) for prompt in prompts]
    padding = [max(lengths) - length for length in lengths]
    pads = [*pads, *(row.prompt[-1] for row in rows[len(pads) :])]
    padded = [[*prompt, *[pad] * more] for prompt, pad, more in zip(prompts, pads, padding, strict=True)]
    cache = caches.merge([new_cache() for _ in rows])
    caches.finalize(cache)
    caches.prepare(cache, lengths, padding)  # unpadded rows too: masked kernels round differently
    yield _Pass(padded, cache)
    caches.finalize(cache)
    if len(rows) > _PREFILLED:
        caches.filter_rows(cache, range(_PREFILLED))
    logits: mx.array = yield _Pass([row.prompt[-1:] for row in rows[:_PREFILLED]], cache)
    return logits


def _fault(computed: str, together: mx.array, alike: Sequence[mx.array], rows: Sequence[_Row]) -> str:
    """Describe the difference between batched rows and their references; empty if they agree. `alike`: logits
    of the first rows without padding.
    """
    apart = max(distance(logits, wanted) for logits, wanted in zip(together, alike, strict=False))
    astray = max(distance(logits, row.logits) for logits, row in zip(together, rows, strict=True))
    if apart <= SAME and astray <= ASTRAY:
        return ""
    return f"{computed} together, logits are {max(apart, astray):.2g} of their spread apart"


class PassCosts:
    """Learns the seconds of passes by their token count and extrapolates to larger ones. `first`: seconds of
    a pass of one token.
    """

    def __init__(self, first: float) -> None:
        self._seconds = {1: first}

    def observe(self, tokens: int, seconds: float) -> None:
        self._seconds[tokens] = seconds

    def predict(self, tokens: int) -> float:
        """Return the predicted seconds, on the line through the two largest passes that are not larger."""
        counts = sorted(count for count in self._seconds if count <= tokens)
        last = counts[-1]
        if len(counts) == 1:
            return self._seconds[last] * tokens / last
        before = counts[-2]
        per_token = (self._seconds[last] - self._seconds[before]) / (last - before)
        return self._seconds[last] + max(0.0, per_token) * (tokens - last)

    def fitting(self, tokens: int, seconds: float) -> int:
        """Return the number of these tokens, at least one, that a pass can compute within a time."""
        fits = (count for count in range(tokens, 1, -1) if self.predict(count) <= seconds)
        return next(fits, 1)
