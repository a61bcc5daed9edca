"""Log-probabilities for the rows of a batch that asked for them: one small array per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.sampling.exponential import log_sum_exp
from greenroom.engine.sampling.top_k import top_k_candidates

Scores = Sequence[float]
"""Of one token: its log-probability, those of the likeliest, and the ids of the likeliest."""

PreparedScores = tuple[mx.array, mx.array, mx.array | None, mx.array | None]
"""Logits and log-sum-exp of the rows that asked, and the indices and values of their top-k candidates."""


class LogprobScorer:
    """Scores the tokens of a fixed set of rows by the model's own distribution, in float32.

    Args:
        wanted: For each row that asks, how many of the likeliest tokens it wants too.
        rows: How many there are in all.
    """

    def __init__(self, wanted: Mapping[int, int], rows: int) -> None:
        self._indices = list(wanted)
        self._rows = None if len(wanted) == rows else mx.array(self._indices)
        self._top = max(wanted.values(), default=0)

    def prepare(self, logits: mx.array) -> PreparedScores:
        """Return what has to be known of the logits before anything changes them."""
        chosen = logits if self._rows is None else logits[self._rows]
        chosen = chosen.astype(mx.float32)
        if self._top == 0:
            return chosen, log_sum_exp(chosen), None, None
        indices, values = top_k_candidates(chosen, min(self._top, chosen.shape[-1]))
        return chosen, log_sum_exp(chosen, values[:, :1]), indices, values

    def score(self, prepared: PreparedScores, tokens: mx.array) -> mx.array:
        """Return scores `[rows that asked, 1 + 2 * top]` of the sampled tokens `[rows]`."""
        logits, total, indices, values = prepared
        chosen = (tokens if self._rows is None else tokens[self._rows])[:, None]
        parts = [mx.take_along_axis(logits, chosen, axis=-1) - total]
        if indices is not None and values is not None:
            # Ids of tokens are small enough to be exact in float32.
            parts += [values - total, indices.astype(mx.float32)]
        return mx.concatenate(parts, axis=-1)

    def by_row(self, scores: mx.array) -> dict[int, Scores]:
        """Return the scores on the host, by index of the row. Waits."""
        values: Any = scores.tolist()
        return dict(zip(self._indices, values, strict=True))


Scored = tuple[LogprobScorer, mx.array]
"""Scores that are being computed, and what tells whose they are."""
