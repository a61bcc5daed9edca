"""A short proof, with a model's own weights, that rows computed together come out as each does alone.

What stands in the places that pad a row must not change anything, so a padded row has to agree to the last
bits with the same row without padding, in whatever precision a model computes. Kernels round otherwise for
few rows than for many, and a deep model makes 0.01 to 0.2 of the logits' spread of the smallest difference.
So the row without padding is computed several times in one pass, as many tokens in all as the padded ones,
and nothing else differs either:

- the shorter rows are so many that a block which is cut where they end (`RaggedRows`) computes many, too;
- what is padded on the left has fewer tokens than the 32 lanes in which GPUs add them up, so that the order
  of the sums is the same.

The padding is no multiple of blocks into which a cache may be cut. Measured over mlx-lm's architectures under
such arithmetic: 0.04 to 1.6 where one is wrong, 0 where it is right, but for one (dbrx) whose experts are
matrices of their own, each of which has as many rows as tokens happen to be routed to it.

It is made of passes, each of which may come whenever there is time for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.device.device_errors import raise_unless_own, synchronize_streams
from greenroom.engine.kv_cache import caches
from greenroom.engine.kv_cache.batching import new_mergeable_cache
from greenroom.engine.kv_cache.caches import Cache
from greenroom.engine.loading.batching.findings import Findings
from greenroom.engine.loading.batching.pass_costs import PassCosts

SAME = 1e-3
"""Largest distance of rows that differ in their padding alone, in spreads of the logits."""

ASTRAY = 1.0
"""Largest distance of a row in a batch from itself alone: unrelated logits are 1.4 apart, and under such
arithmetic rounding made 0.46 of tiny models. What is wrong in any batch, padded or not, shows here only."""

_LENGTHS = (19, 28)
"""Tokens of the prompts, of which all but the last are prefilled."""

_STEPPED = 3
"""Rows that are decoded together."""

_PREFILLED = 4
"""Rows that are prefilled together; the short part of them alone has more than 64 tokens."""

_ALIKE = _PREFILLED * (_LENGTHS[1] - 1) // (_LENGTHS[0] - 1)
"""Short rows that have as many tokens in all as those have that are padded to the long one."""

_FIRST = 3
"""The only token of a third prompt, whose cache is empty."""

ROWS, TOKENS = max(2 * _STEPPED, _ALIKE), max(_LENGTHS)
"""Rows whose caches there are at once at most, and tokens of the longest."""

_Passes = Generator["_Pass", mx.array, str]
"""Passes, each of which is sent the logits of its rows' last tokens, up to what is wrong, if anything is."""


@attrs.define(eq=False)
class _Pass:
    """Tokens `[rows][tokens]` that a model is called with; those of one row may come in pieces."""

    tokens: list[list[int]]
    cache: Cache


@attrs.define(eq=False)
class _Row:
    """A prompt, a cache of all but its last token, and the logits that follow it when it is alone."""

    prompt: list[int]
    cache: Cache
    logits: mx.array = attrs.field(factory=lambda: mx.zeros(0))


class Proof:
    """Finds out what rows of a model may be computed together, a pass at a time.

    Args:
        model: Its weights are in memory, and its caches can be merged, unless they are restricted.
        findings: Of an earlier proof, which this one continues.
        first_pass: Seconds that one token took.
        clock: Seconds, from any origin.

    Attributes:
        findings: What is known so far.
        seconds: That all passes took.
        failed: What the findings are is the fault of an exception, which may be another one's too.
    """

    def __init__(
        self,
        model: Any,
        findings: Findings | None = None,
        first_pass: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.findings = findings or Findings()
        self.seconds = 0.0
        self.failed = False
        self._model = model
        self._clock = clock
        self._costs = PassCosts(first_pass)
        self._passes = self._checks()
        self._next: _Pass | None = None

    def run(self, seconds: float) -> None:
        """Compute what there is time for; what a pass will take is known from those before it."""
        end = self._clock() + seconds
        while not self.findings.complete and self.predict(left := end - self._clock()) <= left:
            self.advance(left)

    def predict(self, seconds: float) -> float:
        """Return the seconds that the next pass will take, or of it the piece that these suffice for."""
        if self._next is None:
            return self._costs.predict(1)
        return self._costs.predict(len(self._next.tokens) * self._width(self._next, seconds))

    def advance(self, seconds: float) -> None:
        """Compute the next pass, or of it the piece that these seconds suffice for; one token in any case.

        Raises:
            RuntimeError: The device has failed, which tells nothing of the model.
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
        except BaseException as error:  # models fail in ways of their own, by exit() and panics of Rust too
            raise_unless_own(error)
            self._next = None
            if not self.findings.complete:
                self.failed = True
                self._found(f"{type(error).__name__}: {error}")
                self.pause()
        self.seconds += self._clock() - began

    def pause(self) -> None:
        """Drop the caches; what is not found out yet begins anew with the next pass."""
        self._passes.close()
        self._passes, self._next = self._checks(), None

    def _width(self, due: _Pass, seconds: float) -> int:
        width = len(due.tokens[0])
        return width if len(due.tokens) > 1 else self._costs.fitting(width, seconds)

    def _checks(self) -> Generator[_Pass, mx.array, None]:
        """Yield the passes of what is not known, and note what they tell."""
        rows = yield from _rows(self._new_cache)
        if self.findings.decode is None:
            self._found((yield from _decoding_fault(rows)))
        else:
            yield from _last_tokens(rows)
        if not self.findings.complete:
            self._found((yield from _prefilling_fault(self._new_cache, rows)))

    def _found(self, fault: str) -> None:
        """Note the outcome of the check that has come to its end."""
        if self.findings.decode is None:
            self.findings = Findings(False if fault else None, not fault, fault)
        else:
            self.findings = Findings(not fault, True, fault)

    def _new_cache(self) -> Cache:
        return new_mergeable_cache(self._model)


def distance(logits: mx.array, wanted: mx.array) -> float:
    """Return how far logits are from others, in spreads of those; infinite if some are no numbers."""
    wanted = wanted.astype(mx.float32)
    squares = mx.mean((logits.astype(mx.float32) - wanted) ** 2)
    apart = float(mx.sqrt(squares) / mx.maximum(mx.std(wanted), 1e-30))
    return apart if apart == apart else float("inf")


def _rows(new_cache: Callable[[], Cache]) -> Generator[_Pass, mx.array, list[_Row]]:
    """Compute each row alone: one whose cache is empty, a short and a long one."""
    logits = (yield _Pass([[_FIRST]], new_cache()))[0]
    yield _Pass([[_FIRST, _FIRST]], new_cache())  # shows what more tokens take
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
    """Compute the last token of each row alone; nobody needs the caches any more."""
    for row in rows[1:]:
        row.logits = (yield _Pass([row.prompt[-1:]], row.cache))[0]
        row.cache = []


def _decoding_fault(rows: list[_Row]) -> _Passes:
    """Return what is wrong with a step of rows of unequal length, if anything is."""
    together = yield _Pass([[row.prompt[-1]] for row in rows], caches.merge([row.cache for row in rows]))
    alike = []
    for row in rows:
        alike.append((yield from _repeated_step(row)))
    yield from _last_tokens(rows)
    return _fault("decoded", together, alike, rows)


def _repeated_step(row: _Row) -> Generator[_Pass, mx.array, mx.array]:
    """Return a row's logits as they are in a batch of that row alone, which nothing pads."""
    repeated: mx.array = yield _Pass([row.prompt[-1:]] * _STEPPED, caches.merge([row.cache] * _STEPPED))
    return repeated[0]


def _prefilling_fault(new_cache: Callable[[], Cache], rows: list[_Row]) -> _Passes:
    """Return what is wrong with prompts of unequal length, two of which differ in their padding alone.

    Long ones are compared with themselves alone only: what is cut where others end computes them in pieces,
    which rounds otherwise.
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
    """Prefill rows in one pass, and return the logits of the first of them, as many as make a batch.

    Args:
        pads: Tokens that pad the first rows to the longest; others are padded with their own last ones.
    """
    prompts = [row.prompt[:-1] for row in rows]
    lengths = [len(prompt) for prompt in prompts]
    padding = [max(lengths) - length for length in lengths]
    pads = [*pads, *(row.prompt[-1] for row in rows[len(pads) :])]
    padded = [[*prompt, *[pad] * more] for prompt, pad, more in zip(prompts, pads, padding, strict=True)]
    cache = caches.merge([new_cache() for _ in rows])
    caches.finalize(cache)
    caches.prepare(cache, lengths, padding)  # unpadded rows too, since kernels with a mask round otherwise
    yield _Pass(padded, cache)
    caches.finalize(cache)
    if len(rows) > _PREFILLED:
        caches.filter_rows(cache, range(_PREFILLED))
    logits: mx.array = yield _Pass([row.prompt[-1:] for row in rows[:_PREFILLED]], cache)
    return logits


def _fault(computed: str, together: mx.array, alike: Sequence[mx.array], rows: Sequence[_Row]) -> str:
    """Return what is wrong with the logits of rows in a batch, if anything is.

    Args:
        alike: Of the first of these rows, without padding.
    """
    apart = max(distance(logits, wanted) for logits, wanted in zip(together, alike, strict=False))
    astray = max(distance(logits, row.logits) for logits, row in zip(together, rows, strict=True))
    if apart <= SAME and astray <= ASTRAY:
        return ""
    return f"{computed} together, logits are {max(apart, astray):.2g} of their spread apart"
