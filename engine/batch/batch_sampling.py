"""The next tokens of the rows of a batch, and their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence as GenericSequence

import mlx.core as mx

from greenroom.engine.batch.grammar_masks import GrammarFailures, apply_grammars
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

    def invalidate(self) -> None:
        """Rows have come or been cut out, or have drawn otherwise; those that merely left do not matter."""
        self._sampler = None

    def sample(
        self, logits: mx.array, sequences: GenericSequence[Sequence | None]
    ) -> tuple[Sampled, GrammarFailures]:
        """Start drawing from logits `[rows, vocabulary]`; returns the rows that cannot go on, too."""
        sampler = self._sampler
        if sampler is None or sampler.is_stale:
            sampler = self._make_sampler(sequences)
        scorer = self._scorer
        known = None if scorer is None else scorer.prepare(logits)
        logits, refused = apply_grammars(logits, sequences)
        tokens = sampler(logits)
        mx.async_eval(tokens)
        if scorer is None or known is None:
            return (tokens, None), refused
        scores = scorer.score(known, tokens)
        mx.async_eval(scores)
        return (tokens, (scorer, scores)), refused

    def _make_sampler(self, sequences: GenericSequence[Sequence | None]) -> Sampler:
        self._sampler = Sampler(
            [row.sampling if row else Sampler.IDLE for row in sequences],
            [row.sampled if row else 0 for row in sequences],
            tuple(sequences),
        )
        wanted = {i: row.logprobs.top for i, row in enumerate(sequences) if row and row.logprobs is not None}
        self._scorer = LogprobScorer(wanted, len(sequences)) if wanted else None
        return self._sampler


def needs_host(sequences: GenericSequence[Sequence | None]) -> bool:
    """Whether the next tokens can be drawn only when the host has read those before them.

    Otherwise drawing is launched together with the forward pass, in one evaluation instead of two.
    """
    for row in sequences:
        if row is not None and (row.matcher is not None or row.sampling.has_penalties):
            return True
    return False
