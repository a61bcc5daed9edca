"""The next tokens of the rows of a batch, and their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.batch.grammar_masks import Refused, constrain
from greenroom.engine.sampling.logprobs import LogprobScorer, Scored
from greenroom.engine.sampling.sampler import Sampler
from greenroom.engine.sequences.sequence import Sequence

Sampled = tuple[mx.array, Scored | None]
"""Tokens that are being drawn, by row, and the scores of the rows that asked for them."""


class BatchSampling:
    """Keeps what draws for the rows of a batch until others are in it."""

    def __init__(self) -> None:
        self._sampler: Sampler | None = None
        self._scorer: LogprobScorer | None = None

    def rows_changed(self) -> None:
        """Rows have come or been cut out, or have drawn otherwise; those that merely left do not matter."""
        self._sampler = None

    def draw(self, logits: mx.array, rows: GenericSequence[Sequence | None]) -> tuple[Sampled, Refused]:
        """Start drawing from logits `[rows, vocabulary]`; returns the rows that cannot go on, too."""
        sampler = self._sampler
        if sampler is None or sampler.stale:
            sampler = self._make_sampler(rows)
        scorer = self._scorer
        known = None if scorer is None else scorer.of(logits)
        logits, refused = constrain(logits, rows)
        tokens = sampler(logits)
        mx.async_eval(tokens)
        if scorer is None or known is None:
            return (tokens, None), refused
        scores = scorer.score(known, tokens)
        mx.async_eval(scores)
        return (tokens, (scorer, scores)), refused

    def _make_sampler(self, rows: GenericSequence[Sequence | None]) -> Sampler:
        self._sampler = Sampler(
            [row.sampling if row else Sampler.IDLE for row in rows],
            [row.sampled if row else 0 for row in rows],
            tuple(rows),
        )
        wanted = {i: row.logprobs.top for i, row in enumerate(rows) if row and row.logprobs is not None}
        self._scorer = LogprobScorer(wanted, len(rows)) if wanted else None
        return self._sampler


def needs_host(rows: GenericSequence[Sequence | None]) -> bool:
    """Whether the next tokens can be drawn only when the host has read those before them.

    Otherwise drawing is launched together with the forward pass, in one evaluation instead of two.
    """
    for row in rows:  # noqa: SIM110 - a generator takes three times as long, at every step
        if row is not None and (row.matcher is not None or row.sampling.penalises):
            return True
    return False
