"""Draw one token for every row of a batch, each by its own settings, in a handful of array operations.

Logits are adjusted first (penalties, biases), then filters apply in the order for which models' published
settings are tuned (Hugging Face's): temperature, then top_k, top_p of what is left, min_p, and xtc last. Rows
that need nothing pay nothing: rows are sorted into classes of work, and each class is computed for its rows
only. Every row draws from a random stream of its own, keyed by its seed and its position, so that its
neighbours cannot change what it draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import mlx.core as mx

from greenroom.engine.sampling.exponential_race import is_small
from greenroom.engine.sampling.logits_processors import LogitsProcessors, Written
from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.sampling.strategies import AHEAD, SamplingStrategy, draw_class


@attrs.frozen(eq=False)
class _Class:
    """Rows that are computed together.

    Args:
        rows: Their indices; None if they are all there are.
    """

    rows: mx.array | None
    draw: SamplingStrategy
    adjust: LogitsProcessors | None

    def __call__(self, logits: mx.array) -> mx.array:
        chosen = logits if self.rows is None else logits[self.rows]
        return self.draw.draw(chosen if self.adjust is None else self.adjust(chosen))


class Sampler:
    """Draws for a fixed set of rows; made anew when rows join or leave.

    Args:
        rows: Settings by row.
        positions: How many tokens each row has drawn before.
        written: Tokens by row, for rows with penalties.
        ahead: Steps for which random numbers are drawn at once.
    """

    IDLE = SamplingParameters(seed=0)
    """Settings of a row whose token nobody will read."""

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        written: Sequence[Written | None] = (),
        ahead: int = AHEAD,
    ) -> None:
        self._ahead = ahead
        self._rows = tuple(rows)
        self._positions = list(positions)
        self._written = written or [None] * len(rows)
        self._classes: list[_Class] = []
        self._adjust: LogitsProcessors | None = None
        self._order: mx.array | None = None
        self._greedy = all(row.temperature == 0 and not row.adjusts for row in rows)
        waiting = [row.min_tokens - at for row, at in zip(rows, positions, strict=True)]
        self._steps_left = min((steps for steps in waiting if steps > 0), default=0)

    @property
    def stale(self) -> bool:
        """Whether a row may now do what it might not: another sampler has to be made."""
        return self._steps_left < 0

    def __call__(self, logits: mx.array) -> mx.array:
        """Tokens `[rows]` (uint32) for logits `[rows, vocabulary]`; nothing is evaluated."""
        if self._greedy:
            return mx.argmax(logits, axis=-1)
        if not self._classes:
            self._classify(logits.shape[-1])
        if self._steps_left:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._steps_left = -1
        if self._adjust is not None:
            logits = self._adjust(logits)
        if self._order is None:
            return self._classes[0](logits)
        return mx.concatenate([one(logits) for one in self._classes])[self._order]

    def _classify(self, vocabulary: int) -> None:
        """Sort the rows into classes of work."""
        members: dict[tuple[type[SamplingStrategy], int, bool], list[int]] = {}
        for index, row in enumerate(self._rows):
            members.setdefault(draw_class(row, vocabulary), []).append(index)
        # One more pass over a small vocabulary costs less than the same operations for several classes.
        together = is_small(vocabulary)
        if together and any(row.adjusts for row in self._rows):
            self._adjust = LogitsProcessors(self._rows, self._positions, self._written, vocabulary)
        for (kind, width, _), rows in members.items():
            settings, positions = [self._rows[i] for i in rows], [self._positions[i] for i in rows]
            adjust = None
            if not together and any(row.adjusts for row in settings):
                adjust = LogitsProcessors(settings, positions, [self._written[i] for i in rows], vocabulary)
            indices = mx.array(rows) if len(members) > 1 else None
            self._classes.append(_Class(indices, kind(settings, positions, width, self._ahead), adjust))
        if len(members) > 1:
            self._order = mx.argsort(mx.array([index for rows in members.values() for index in rows]))
