"""Trials that compare the logits of batched rows with those of each row alone, for every form of batching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.caches import Batching, Cache
from greenroom.engine.loading.invariance_check import distance
from greenroom.tests.support.architectures.architecture_fields import VOCABULARY

TOLERANCE = 1e-3
"""Largest difference of logits attributed to the order of sums, as a fraction of the logits' spread."""

LENGTHS = (40, 5, 1, 23, 2)
"""Prompt lengths of the rows in tokens: one longer than any window or block of the tiny models, one that
joins with an empty cache, and one whose cache is shorter than a convolution's context.
"""

_STEPS = 9
"""Decode steps after each prompt."""


@attrs.frozen
class Row:
    """A prompt, the tokens decoded after it, and the logits of the row computed alone.

    Args:
        logits: Logits `[steps + 1, vocabulary]` of the prompt's last token and of each later token.
    """

    prompt: list[int]
    fed: list[int]
    logits: mx.array

    def token(self, step: int) -> int:
        """Return the input of a decode step; step 0 takes the prompt's last token."""
        return [self.prompt[-1], *self.fed][step]


class Together:
    """Rows that share a cache, and the largest difference of their logits from those of each row alone."""

    def __init__(self, model: Any, rows: Sequence[Row], cache: Cache) -> None:
        self._model = model
        self.rows = list(rows)
        self.steps = [0] * len(rows)
        self.cache = cache
        self.worst = 0.0

    def decode(self, steps: int) -> None:
        for _ in range(steps):
            inputs = [[row.token(step)] for row, step in zip(self.rows, self.steps, strict=True)]
            logits = self._model(mx.array(inputs), cache=self.cache)[:, -1]
            for index, row in enumerate(self.rows):
                self.worst = max(self.worst, distance(logits[index], row.logits[self.steps[index]]))
                self.steps[index] += 1

    def extend(self, rows: Sequence[Row], cache: Cache) -> None:
        caches.extend(self.cache, cache)
        self.rows += rows
        self.steps += [0] * len(rows)

    def filter(self, kept: Sequence[int]) -> None:
        caches.filter_rows(self.cache, kept)
        self.rows = [self.rows[index] for index in kept]
        self.steps = [self.steps[index] for index in kept]

    def extract(self, index: int) -> None:
        self.cache = caches.extract(self.cache, index)
        self.rows, self.steps = [self.rows[index]], [self.steps[index]]


def rows_of(model: Any, vocabulary: int = VOCABULARY, lengths: Sequence[int] = LENGTHS) -> list[Row]:
    """Return rows of different tokens, each computed alone."""
    rows = []
    for number, length in enumerate(lengths):
        tokens = [
            7 + (number * 911 + at * at * 13 + at * 37) % (vocabulary - 7) for at in range(length + _STEPS)
        ]
        rows.append(_computed_alone(model, tokens[:length], tokens[length:]))
    return rows


def _computed_alone(model: Any, prompt: list[int], fed: list[int], cut: int = 0) -> Row:
    """Return a row computed alone, its prompt prefilled in two chunks split at `cut` if that is not 0."""
    cache = prefilled(model, prompt[:cut])
    if rest := prompt[cut:-1]:
        model(mx.array([rest]), cache=cache)
    logits = [model(mx.array([[token]]), cache=cache)[0, -1] for token in (prompt[-1], *fed)]
    mx.eval(logits)
    return Row(prompt, fed, mx.stack(logits))


def prefilled(model: Any, tokens: Sequence[int]) -> Cache:
    """Return a plain cache that holds these tokens."""
    cache = caches.new_cache(model)
    if tokens:
        model(mx.array([list(tokens)]), cache=cache)
        mx.eval(caches.state(cache))
    return cache


def try_decoding(model: Any, rows: Sequence[Row]) -> float:
    """Decode separately prefilled rows that join and leave a batch; return the largest difference."""
    long, short, single, late, _ = rows
    plain = [prefilled(model, row.prompt[:-1]) for row in rows]
    together = Together(model, [long, short, single], caches.merge(plain[:3]))
    together.decode(2)
    arriving = [late, single]
    together.extend(arriving, caches.merge([plain[3], prefilled(model, single.prompt[:-1])]))
    together.decode(3)
    together.filter([1, 2, 3])
    together.decode(2)
    together.extract(1)
    together.decode(2)
    return together.worst


def try_joining(model: Any, rows: Sequence[Row]) -> float:
    """Join a row of one or two tokens to a lone row, as most batches begin; return the largest difference."""
    _, short, single, _, double = rows
    worst = 0.0
    for pair in ((short, single), (single, short), (double, short), (single, double)):
        cache = caches.merge([prefilled(model, row.prompt[:-1]) for row in pair])
        together = Together(model, pair, cache)
        together.decode(2)
        worst = max(worst, together.worst)
    return worst


def try_prefilling(model: Any, rows: Sequence[Row], cached: Sequence[int] = (0, 0, 0)) -> float:
    """Prefill rows together behind prefixes of `cached` tokens, and decode; return the largest difference."""
    chosen = [
        _computed_alone(model, row.prompt, row.fed, done) if done else row
        for row, done in zip((rows[1], rows[0], rows[3]), cached, strict=True)
    ]
    caches_of_rows = [prefilled(model, row.prompt[:done]) for row, done in zip(chosen, cached, strict=True)]
    cache = caches.merge(caches_of_rows)
    rests = [row.prompt[done:-1] for row, done in zip(chosen, cached, strict=True)]
    width = max(map(len, rests))
    padding = [width - len(rest) for rest in rests]
    caches.finalize(cache)
    caches.prepare(cache, [len(rest) for rest in rests], padding)
    model(mx.array([rest + [rest[-1]] * pad for rest, pad in zip(rests, padding, strict=True)]), cache=cache)
    caches.finalize(cache)
    together = Together(model, chosen, cache)
    together.decode(3)
    together.filter([0, 2])
    together.decode(1)
    together.extract(0)
    together.decode(2)
    return together.worst


def prove_thoroughly(model: Any) -> Batching:
    """Return the batching that a tiny model supports, after trying every form."""
    if not caches.can_batch(caches.new_cache(model)):
        return Batching(False, False, "its caches cannot be merged")
    rows = rows_of(model)
    if fault := _fault(model, rows, (try_decoding, try_joining)):
        return Batching(False, False, f"decoded together, {fault}")
    prefixes = ((0, 0, 0), (2, 0, 7), (0, 20, 1))
    fault = _fault(model, rows, [partial(try_prefilling, cached=cached) for cached in prefixes])
    return Batching(not fault, True, fault and f"prefilled together, {fault}")


def _fault(model: Any, rows: Sequence[Row], trials: Sequence[Callable[[Any, Sequence[Row]], float]]) -> str:
    """Return the first error, or the largest difference beyond `TOLERANCE`, as text; empty if rows agree."""
    worst = 0.0
    for trial in trials:
        try:
            worst = max(worst, trial(model, rows))
        except Exception as error:  # foreign model code may raise anything
            return f"{type(error).__name__}: {error}"
    return "" if worst <= TOLERANCE else f"logits are {worst:.2g} of their spread apart"
