"""Sampling of one token per row of a batch, each with its own parameters, in few array operations.

Logits are processed first (penalties, biases). Filters follow in Hugging Face's order, for which models'
published settings are tuned: temperature, top_k, top_p of the rest, min_p, and xtc. Rows are grouped by
strategy, and each strategy runs for its own rows only, so no row pays for another's settings. Every row has a
random stream of its own, keyed by its seed and position, so that its neighbours cannot change its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.text.sampling_parameters import LogitsProcessors, SamplingParameters, TokenHistory
from greenroom.engine.text.sampling_strategies import (
    STEPS_AHEAD,
    SamplingStrategy,
    StrategyKey,
    choose_strategy,
    log_sum_exp,
    top_k_candidates,
)


@attrs.frozen(eq=False)
class _StrategyRows:
    """Rows sampled with one strategy. `indices`: indices of these rows; None for all rows."""

    indices: mx.array | None
    strategy: SamplingStrategy
    processors: LogitsProcessors | None

    def sample(self, logits: mx.array) -> mx.array:
        chosen = logits if self.indices is None else logits[self.indices]
        return self.strategy.sample(chosen if self.processors is None else self.processors(chosen))


class Sampler:
    """Sampler for a fixed set of rows; replaced when rows are added or removed.

    Args:
        positions: Number of tokens that each row has sampled before.
        histories: Tokens by row, for rows with penalties.
        steps_ahead: Number of steps for which noise is generated at once.
    """

    IDLE = SamplingParameters(seed=0)
    """Parameters of a row whose token is never read."""

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        histories: Sequence[TokenHistory | None] = (),
        steps_ahead: int = STEPS_AHEAD,
    ) -> None:
        self._steps_ahead = steps_ahead
        self._rows = tuple(rows)
        self._positions = list(positions)
        self._histories = histories or [None] * len(rows)
        self._strategies: list[_StrategyRows] = []
        self._order: mx.array | None = None
        self._is_greedy = all(row.temperature == 0 and not row.changes_logits for row in rows)
        left = [row.min_tokens - at for row, at in zip(rows, positions, strict=True)]
        self._steps_left = min((steps for steps in left if steps > 0), default=0)

    @property
    def is_stale(self) -> bool:
        """True once suppressed end tokens become allowed in a row, so that a new sampler is needed."""
        return self._steps_left < 0

    def __call__(self, logits: mx.array) -> mx.array:
        """Sample tokens `[rows]` (uint32) from logits `[rows, vocabulary]`; nothing is evaluated."""
        if self._is_greedy:
            return mx.argmax(logits, axis=-1)
        if not self._strategies:
            self._group_rows(logits.shape[-1])
        if self._steps_left:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._steps_left = -1
        if self._order is None:
            return self._strategies[0].sample(logits)
        return mx.concatenate([rows.sample(logits) for rows in self._strategies])[self._order]

    def _group_rows(self, vocabulary: int) -> None:
        members: dict[StrategyKey, list[int]] = {}
        for index, row in enumerate(self._rows):
            members.setdefault(choose_strategy(row, vocabulary), []).append(index)
        for (strategy, width, _), indices in members.items():
            rows, positions = [self._rows[i] for i in indices], [self._positions[i] for i in indices]
            processors = None
            if any(row.changes_logits for row in rows):
                histories = [self._histories[i] for i in indices]
                processors = LogitsProcessors(rows, positions, histories, vocabulary)
            self._strategies.append(
                _StrategyRows(
                    mx.array(indices) if len(members) > 1 else None,
                    strategy(rows, positions, width, self._steps_ahead),
                    processors,
                )
            )
        if len(members) > 1:
            self._order = mx.argsort(mx.array([index for indices in members.values() for index in indices]))


Scores = Sequence[float]
"""Scores of one token: its log-probability, those of the top-k candidates, and the candidates' ids."""

PreparedScores = tuple[mx.array, mx.array, mx.array | None, mx.array | None]
"""Logits and log-sum-exp of the requesting rows, and the indices and values of their top-k candidates."""


class LogprobScorer:
    """Scores the tokens of a fixed set of rows by the model's unmodified distribution, in float32. `wanted`:
    number of top alternatives for each requesting row; `rows`: number of rows in the batch.
    """

    def __init__(self, wanted: Mapping[int, int], rows: int) -> None:
        self._indices = list(wanted)
        self._rows = None if len(wanted) == rows else mx.array(self._indices)
        self._top = max(wanted.values(), default=0)

    def prepare(self, logits: mx.array) -> PreparedScores:
        """Compute the parts of the scores that need the unmodified logits."""
        chosen = logits if self._rows is None else logits[self._rows]
        chosen = chosen.astype(mx.float32)
        if self._top == 0:
            return chosen, log_sum_exp(chosen), None, None
        indices, values = top_k_candidates(chosen, min(self._top, chosen.shape[-1]))
        return chosen, log_sum_exp(chosen, values[:, :1]), indices, values

    def score(self, prepared: PreparedScores, tokens: mx.array) -> mx.array:
        logits, total, indices, values = prepared
        chosen = (tokens if self._rows is None else tokens[self._rows])[:, None]
        parts = [mx.take_along_axis(logits, chosen, axis=-1) - total]
        if indices is not None and values is not None:
            # Token ids are small enough to be exact in float32.
            parts += [values - total, indices.astype(mx.float32)]
        return mx.concatenate(parts, axis=-1)

    def by_row(self, scores: mx.array) -> dict[int, Scores]:
        """Wait for the scores and return them by row index."""
        values: Any = scores.tolist()
        return dict(zip(self._indices, values, strict=True))


Scored = tuple[LogprobScorer, mx.array]
"""Scores in flight, with the scorer that assigns them to rows."""
