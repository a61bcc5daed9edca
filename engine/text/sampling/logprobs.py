"""Log-probabilities for the rows of a batch that request them, as one small array per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from greenroom.engine.text.sampling.exponential import log_sum_exp
from greenroom.engine.text.sampling.top_k import top_k_candidates

Scores = Sequence[float]
"""Scores of one token: its log-probability, those of the top-k candidates, and the candidates' ids."""

PreparedScores = tuple[mx.array, mx.array, mx.array | None, mx.array | None]
"""Logits and log-sum-exp of the requesting rows, and the indices and values of their top-k candidates."""


class LogprobScorer:
    """Scores the tokens of a fixed set of rows by the model's unmodified distribution, in float32.

    Args:
        wanted: Number of top alternatives for each requesting row.
        rows: Number of rows in the batch.
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
        """Return the scores of the sampled tokens `[rows]`: `[requesting rows, 1 + 2 * top]`."""
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
