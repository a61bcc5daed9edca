"""A short proof, with a model's own weights, that rows computed together come out as each does alone.

What stands in the places that pad a row must not change anything: two rows that differ in nothing else have
to agree to the last bits, in whatever precision a model computes. A row that is compared with itself alone
goes through other sums, so there only what is far apart counts. Measured over mlx-lm's architectures: 0.1 to
1.5 of the logits' spread where one is wrong, at most 1e-5 where it is right, in 32 bits, 16 and 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import Batching
from greenroom.engine.kv_cache.caches import Cache

SAME = 1e-3
"""Largest distance of rows that differ in their padding alone, in spreads of the logits."""

ALIKE = 0.05
"""Largest distance of a row in a batch from itself alone."""

_LENGTHS = (13, 30)
"""Tokens of the prompts."""

_FIRST = 3
"""The only token of a third prompt, whose cache is empty."""


class OutOfTimeError(Exception):
    """The next pass would take more time than there is."""


@attrs.define(eq=False)
class _Row:
    """A prompt, a cache of all but its last token, and the logits that follow it when it is alone."""

    prompt: list[int]
    cache: Cache
    logits: mx.array = attrs.field(factory=lambda: mx.zeros(0))


class _Passes:
    """Calls a model while there is time: what a pass will take is known from shorter ones before it."""

    def __init__(self, model: Any, seconds: float, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._end = clock() + seconds
        self._shortest = 0.0
        self._per_token = 0.0
        self._most_tokens = 1

    def new_cache(self) -> Cache:
        return caches.new_cache(self._model)

    def run(self, tokens: list[list[int]], cache: Cache) -> mx.array:
        """Return the logits `[rows, vocabulary]` of the last tokens.

        Raises:
            OutOfTimeError: There is no time for it.
        """
        began, count = self._clock(), len(tokens) * len(tokens[0])
        if began + self._shortest + self._per_token * count > self._end:
            raise OutOfTimeError
        logits: mx.array = self._model(mx.array(tokens), cache=cache)[:, -1].astype(mx.float32)
        mx.eval(logits, caches.state(cache))
        seconds = self._clock() - began
        if not self._shortest:
            self._per_token = seconds
        elif count > self._most_tokens:
            self._per_token = max(0.0, seconds - self._shortest) / (count - 1)
            self._most_tokens = count
        self._shortest = min(self._shortest or seconds, seconds)
        return logits


def prove(
    model: Any, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[Batching, bool]:
    """Return what may be computed together, and whether there was time to find out all of it.

    Args:
        model: Its weights are in memory, and its caches can be merged.
        seconds: That it may take; what they do not suffice for is computed alone.
    """
    passes = _Passes(model, seconds, clock)
    decode = False
    try:
        rows = _rows(passes)
        if reason := _decoding_fault(passes, rows):
            return Batching(False, False, reason), True
        decode = True
        reason = _prefilling_fault(passes, rows)
        return Batching(not reason, True, reason), True
    except OutOfTimeError:
        return Batching(False, decode, "there was no time for a proof"), False
    except Exception as error:  # models fail in ways of their own
        return Batching(False, decode, f"{type(error).__name__}: {error}"), True


def distance(logits: mx.array, wanted: mx.array) -> float:
    """Return how far logits are from others, in spreads of those; infinite if some are no numbers."""
    wanted = wanted.astype(mx.float32)
    squares = mx.mean((logits.astype(mx.float32) - wanted) ** 2)
    apart = float(mx.sqrt(squares) / mx.maximum(mx.std(wanted), 1e-30))
    return apart if apart == apart else float("inf")


def _rows(passes: _Passes) -> list[_Row]:
    """Compute each row alone: one whose cache is empty, a short and a long one."""
    logits = passes.run([[_FIRST]], passes.new_cache())[0]
    passes.run([[_FIRST, _FIRST]], passes.new_cache())  # shows what more tokens take
    rows = [_Row([_FIRST], passes.new_cache(), logits)]
    for length in _LENGTHS:
        prompt = [
            _FIRST + (at * at * 7919 + at * 104729) % (logits.size - _FIRST) for at in range(length, 0, -1)
        ]
        cache = passes.new_cache()
        passes.run([prompt[:-1]], cache)
        rows.append(_Row(prompt, cache))
    return rows


def _decoding_fault(passes: _Passes, rows: list[_Row]) -> str:
    """Return what is wrong with a step of rows of unequal length, if anything is."""
    batch = caches.merge([row.cache for row in rows])
    together = passes.run([[row.prompt[-1]] for row in rows], batch)
    for row in rows[1:]:
        row.logits = passes.run([row.prompt[-1:]], row.cache)[0]
    apart = max(distance(logits, row.logits) for logits, row in zip(together, rows, strict=True))
    return "" if apart <= ALIKE else f"decoded together, logits are {apart:.2g} of their spread apart"


def _prefilling_fault(passes: _Passes, rows: list[_Row]) -> str:
    """Return what is wrong with prompts of unequal length, two of which differ in their padding alone."""
    _, short, long = rows
    lengths = [len(row.prompt) - 1 for row in (short, short, long)]
    padding = [lengths[2] - length for length in lengths]
    prompts = [[*short.prompt[:-1], *[pad] * padding[0]] for pad in (short.prompt[-1], long.prompt[0])]
    cache = caches.merge([passes.new_cache() for _ in lengths])
    caches.prepare(cache, lengths, padding)
    passes.run([*prompts, long.prompt[:-1]], cache)
    caches.finalize(cache)
    first, second, third = passes.run([row.prompt[-1:] for row in (short, short, long)], cache)
    apart = distance(first, second)
    if not apart <= SAME:
        return f"prefilled together, padding moves logits by {apart:.2g} of their spread"
    apart = max(distance(first, short.logits), distance(third, long.logits))
    return "" if apart <= ALIKE else f"prefilled together, logits are {apart:.2g} of their spread apart"
