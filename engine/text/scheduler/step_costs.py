"""Cost model of engine steps, in milliseconds, fitted to measured steps.

Costs are linear in counts (passes, rows, tokens …). The coefficients are fitted online; older samples decay,
so that the model follows changes of the machine's load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import mlx.core as mx

from greenroom.engine.text.batch import Shape
from greenroom.schemas.events.statistics import PhaseSeconds

_DECAY = 0.97
_PRIOR_WEIGHT = 1e-2
_OUTLIER_CLIP = 3.0  # Largest ratio of measured to expected time at which a sample keeps its full weight


class LinearCost:
    """Online non-negative least squares over relative errors. `prior`: initial coefficients; only their
    proportions matter, since the first sample scales them.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        size = len(prior)
        self.samples = 0
        self._prior = tuple(prior)
        self._scale = 1.0
        self._products = [[0.0] * size for _ in prior]
        self._targets = [0.0] * size
        self._coefficients: tuple[float, ...] | None = tuple(prior)

    @property
    def coefficients(self) -> tuple[float, ...]:
        """Milliseconds per unit of each count."""
        if self._coefficients is None:
            self._coefficients = self._fit()
        return self._coefficients

    def predict(self, counts: Sequence[float]) -> float:
        """Return the predicted milliseconds for these counts."""
        return sum(count * each for count, each in zip(counts, self.coefficients, strict=True))

    def observe(self, counts: Sequence[float], milliseconds: float) -> None:
        """Add a sample; outliers weigh less.

        Errors are relative to the expected time, not to the measured one: otherwise slow samples would weigh
        less than fast ones, the fit would lie below the mean, and prefill chunks would be too large.
        """
        if milliseconds <= 0:
            return
        if self.samples == 0:
            self._scale = milliseconds / sum(map(math.prod, zip(counts, self._prior, strict=True)))
        expected = self.predict(counts) if self.samples else milliseconds
        usual = max(expected, milliseconds / _OUTLIER_CLIP)
        self.samples += 1
        relative = [count / usual for count in counts]
        for row, left in enumerate(relative):
            self._targets[row] = _DECAY * self._targets[row] + left * milliseconds / usual
            for column, right in enumerate(relative):
                self._products[row][column] = _DECAY * self._products[row][column] + left * right
        self._coefficients = None

    def _fit(self) -> tuple[float, ...]:
        """Return the least squares solution, with negative coefficients set to zero."""
        products = [list(row) for row in self._products]
        targets = list(self._targets)
        for index, guess in enumerate(self._prior):
            products[index][index] += _PRIOR_WEIGHT / (guess * self._scale) ** 2
            targets[index] += _PRIOR_WEIGHT / (guess * self._scale)
        active = list(range(len(targets)))
        while True:
            found = _solve([[products[i][j] for j in active] for i in active], [targets[i] for i in active])
            worst = min(range(len(found)), key=found.__getitem__)
            if found[worst] >= 0:
                break
            del active[worst]
        coefficients = [0.0] * len(targets)
        for index, value in zip(active, found, strict=True):
            coefficients[index] = value
        return tuple(coefficients)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small positive definite system by elimination.

    For three unknowns numpy is slower: 20 µs instead of 15 to add a sample, solve and predict.
    """
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = rows[column]
        for row in rows[column + 1 :]:
            factor = row[column] / pivot[column]
            for index in range(column, size + 1):
                row[index] -= factor * pivot[index]
    solution = [0.0] * size
    for column in reversed(range(size)):
        solved = sum(rows[column][index] * solution[index] for index in range(column + 1, size))
        solution[column] = (rows[column][size] - solved) / rows[column][column]
    return solution


PrefillChunk = tuple[int, int, int]
"""Rows of a prefill chunk, tokens per row, and tokens already in their KV caches."""

_SAMPLES_PER_FIT = 8
_SMOOTHING = 0.2
_SMOOTHING_RARE = 0.4
"""Weight of a decode-only step that follows prefill, in the ratio of measured to predicted decode time."""
_PAIRS_PER_TOKEN = 256
"""Attention pairs that cost at most as much as the linear work of one token, even in the smallest models."""
_PADDING_PER_PASS = (256, 8192)


class StepCosts:
    """Costs of decode steps, prefill chunks and KV cache copies.

    A decode pass costs a constant for the weights, plus an amount per row and per cached token attended to,
    padding included. A prefill chunk costs an amount per token and per attention pair. It has no constant for
    the weights: noise would drive one of the two coefficients to zero and make chunks huge. A copy costs its
    bytes.

    Attributes:
        spent: Seconds of prefill and decode so far.
    """

    def __init__(self) -> None:
        self.decode = LinearCost((2.0, 0.5, 0.001))
        self.prefill = LinearCost((0.3, 1e-4))
        self.copy = LinearCost((1e-6,))
        self.spent = PhaseSeconds()
        self._slowness = 1.0
        self._prefilled = False
        self._decode_samples: list[tuple[list[float], float]] = []

    def decode_ms(self, batches: Sequence[Shape]) -> float:
        return self._slowness * self.decode.predict(_decode_counts(batches))

    @property
    def pass_ms(self) -> float:
        """Predicted milliseconds of a decode step of one row; 0 until one has been timed."""
        return self.decode_ms([(1, 0)]) if self.decode.samples else 0.0

    def prefill_ms(self, chunks: Sequence[PrefillChunk]) -> float:
        return self.prefill.predict(_prefill_counts(chunks))

    def copy_ms(self, copied: int) -> float:
        """Return the predicted milliseconds of a copy of `copied` bytes; 0 until a copy has been timed."""
        return self.copy.predict((copied,)) if self.copy.samples else 0.0

    def bytes_within(self, milliseconds: float) -> float:
        """Return the bytes that can be copied within a time; a guess until a copy has been timed."""
        return milliseconds / max(self.copy.coefficients[0], 1e-12)

    def tokens_within(self, milliseconds: float, context: int) -> int:
        """Return the number of tokens of one prompt that can be prefilled within a time. `context`: tokens
        already in the prompt's KV cache.
        """
        token, pair = self.prefill.coefficients
        # Late in a prompt, the fit ascribes all time to attention; the next prompt's start differs.
        linear = max(token, _PAIRS_PER_TOKEN * pair) + pair * context
        return int(2 * milliseconds / (linear + math.sqrt(linear * linear + 2 * pair * milliseconds)))

    @property
    def padding_per_pass(self) -> float:
        """Padded tokens that cost as much as one more pass over the weights, clamped to a sane range."""
        weights, _, token = self.decode.coefficients
        low, high = _PADDING_PER_PASS
        return min(max(weights / token, low), high) if token > 0 else high

    def observe(self, batches: Sequence[Shape], chunks: Sequence[PrefillChunk], milliseconds: float) -> None:
        """Add a measured interval."""
        if not chunks:
            self._observe_decode(_decode_counts(batches), milliseconds)
            return
        rest = milliseconds - (self.decode_ms(batches) if batches else 0.0)
        self._prefilled = True
        self.prefill.observe(_prefill_counts(chunks), max(rest, milliseconds / 20))

    def spend(self, batches: Sequence[Shape], prefill_ms: float, seconds: float) -> None:
        """Add an interval to the seconds of each phase, divided as both are predicted to cost.

        Args:
            batches: Shapes of the batches decoded in it; empty if it was prefill only.
            prefill_ms: Predicted milliseconds of the prefill in it.
        """
        share = prefill_ms / max(prefill_ms + self.decode_ms(batches), 1e-9) if batches else 1.0
        self.spent = self.spent.plus(PhaseSeconds(seconds * share, seconds * (1.0 - share)))

    def observe_copy(self, copied: int, milliseconds: float) -> None:
        """Add a measured copy of KV caches, other work excluded."""
        self.copy.observe((copied,), milliseconds)

    def _observe_decode(self, counts: list[float], milliseconds: float) -> None:
        """Add a step without prefill; every eight of them are reduced to their median before the fit."""
        if self.decode.samples:
            ratio = min(milliseconds / max(self.decode.predict(counts), 1e-6), _OUTLIER_CLIP)
            weight = _SMOOTHING_RARE if self._prefilled else _SMOOTHING
            self._slowness += weight * (ratio - self._slowness)
        self._prefilled = False
        samples = self._decode_samples
        if samples and samples[-1][0][:2] != counts[:2]:
            samples.clear()
        samples.append((counts, milliseconds))
        if self.decode.samples == 0 or len(samples) == _SAMPLES_PER_FIT:
            median = sorted(samples, key=lambda sample: sample[1])[len(samples) // 2]
            self.decode.observe(samples[len(samples) // 2][0], median[1])
            samples.clear()


def _decode_counts(batches: Sequence[Shape]) -> list[float]:
    rows = sum(rows for rows, _ in batches)
    return [len(batches), rows, sum(rows * length for rows, length in batches)]


def _prefill_counts(chunks: Sequence[PrefillChunk]) -> list[float]:
    tokens = sum(rows * tokens for rows, tokens, _ in chunks)
    pairs = sum(rows * tokens * (context + tokens / 2) for rows, tokens, context in chunks)
    return [tokens, pairs]


_COPIED_BYTES = 16 * 1024 * 1024
_TRIES = 3


def time_copy() -> tuple[int, float]:
    """Time copies into fresh memory; return the bytes of a copy and the milliseconds of the median.

    A copy that looks too slow is never tried, so one that other processes held up must not count.
    """
    source = mx.ones((1, 1, _COPIED_BYTES // 2), dtype=mx.uint8)
    mx.eval(mx.concatenate([source, source[..., :1]], axis=2))  # compiles the kernels
    copies: list[mx.array] = []
    took: list[float] = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        copies.append(mx.concatenate([source, source], axis=2))
        mx.eval(copies[-1])
        took.append((time.perf_counter() - began) * 1e3)
    return _COPIED_BYTES, sorted(took)[_TRIES // 2]


class StepTimer:
    """Attributes the time between two token arrivals to the work done in between.

    A prefill chunk is launched after each step, and the tokens of a step are read after the next launch. So
    the time between two reads usually includes the chunk from before the last step. If a launch blocks
    because too much is in flight, it includes the chunk from after that step instead. If one of these chunks
    is empty and the other is not, the timer observes two intervals together, or neither.
    """

    def __init__(self, costs: StepCosts, clock: Callable[[], float] = time.perf_counter) -> None:
        self._costs = costs
        self._clock = clock
        self._read_at: float | None = None
        self._launched: tuple[list[Shape], int] = ([], 0)
        self._running: tuple[list[Shape], int] = ([], 0)
        self._before: list[PrefillChunk] = []
        self._behind: list[PrefillChunk] = []
        self._restored: tuple[int, int] = (0, 0)
        self._waited: tuple[float, float] = (0.0, 0.0)
        self._before_chunk_ms: float | None = None
        self._delay_ms: float | None = None
        self._decoded: tuple[list[Shape], list[Shape]] = ([], [])
        self._decoded_at: float | None = None

    @property
    def spent(self) -> PhaseSeconds:
        """Seconds of prefill and decode so far, those without decode steps included."""
        return self._costs.spent

    def on_launched(self, shapes: list[Shape], copied: int, is_regular: bool = True) -> None:
        """Record a launched decode step. `copied`: bytes of KV cache copied for it; `is_regular`: False if
        the cost model shall not learn from it.
        """
        self._running, self._launched = self._launched, (shapes if is_regular else [], copied)
        self._decoded = (self._decoded[1], shapes)

    def rest(self) -> None:
        """Forget the last arrival of tokens, since nothing decodes and the next interval is not a step."""
        self._read_at = self._decoded_at = None

    def on_tokens_read(self) -> None:
        """Record that the tokens of the previous step have arrived."""
        now = self._clock()
        shapes, copied = self._running
        copying = self._launched[1]
        self._spend(now)
        if self._read_at is None or not shapes or any(self._waited):
            self._before_chunk_ms = self._delay_ms = None
        elif copied or copying:
            self._before_chunk_ms = None
            self._observe_copy(shapes, (now - self._read_at) * 1e3, copied, copying)
        elif any(self._restored):
            self._before_chunk_ms = self._delay_ms = None
            self._observe_restoring(shapes, (now - self._read_at) * 1e3)
        else:
            self._observe(shapes, (now - self._read_at) * 1e3)
        self._read_at = now if shapes else None

    def on_prefill_launched(
        self, chunks: Sequence[PrefillChunk], restored: int = 0, waited: float = 0.0
    ) -> None:
        """Record the prefill chunks, if any, launched after the step. `restored`: bytes of cached prefixes
        copied there too; `waited`: milliseconds of work computed there synchronously.
        """
        self._waited = (self._waited[1], waited)
        self._before, self._behind = self._behind, list(chunks)
        self._restored = (self._restored[1], restored)

    def _spend(self, now: float) -> None:
        """Add the time since the last arrival to the seconds of prefill and decode."""
        decoded = self._decoded[0]
        if decoded and self._decoded_at is not None:
            prefill_ms = self._costs.prefill_ms(self._before) + self._waited[0]
            self._costs.spend(decoded, prefill_ms, now - self._decoded_at)
        # The first step waits for the prompt before it, whose seconds the prefill queue adds.
        self._decoded_at = now if decoded else None

    def _observe_restoring(self, shapes: list[Shape], milliseconds: float) -> None:
        """Time copies of cached prefixes if they were made both before and after the step."""
        delay = milliseconds - self._costs.decode_ms(shapes)
        if all(self._restored) and not self._before and not self._behind:
            self._costs.observe_copy(sum(self._restored) // 2, max(delay, milliseconds / 20))

    def _observe_copy(self, shapes: list[Shape], milliseconds: float, copied: int, copying: int) -> None:
        """Measure the time of a cache copy.

        The copy delays the step that launched it or the step after that, so the delays of both are added.
        """
        prefill = self._costs.prefill_ms([*self._before, *self._behind]) / 2
        delay = milliseconds - self._costs.decode_ms(shapes) - prefill
        if copied and not copying and self._delay_ms is not None:
            self._costs.observe_copy(copied, self._delay_ms + delay)
        self._delay_ms = delay if copying and not copied else None

    def _observe(self, shapes: list[Shape], milliseconds: float) -> None:
        both = [*self._before, *self._behind]
        earlier, self._before_chunk_ms = self._before_chunk_ms, None
        if not both:
            self._costs.observe(shapes, [], milliseconds)
        elif self._before and self._behind:
            self._costs.observe([*shapes, *shapes], both, 2 * milliseconds)
        elif self._behind:
            self._before_chunk_ms = milliseconds
        elif earlier is not None:
            self._costs.observe([*shapes, *shapes], both, earlier + milliseconds)
