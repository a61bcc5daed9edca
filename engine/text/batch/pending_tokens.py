"""Sampled tokens that the host has not read yet."""

from __future__ import annotations

from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.text.sampling.broken_rows import split_marks
from greenroom.engine.text.sampling.logprobs import Scored, Scores
from greenroom.engine.text.sequences.sequence import Sequence


@attrs.define(eq=False)
class PendingTokens:
    """One token for each row of a batch, or several of a lone sequence.

    Args:
        tokens: Tokens `[tokens]`, marked if their logits were not finite (`mark_broken`); a list once on the
            host.
        sequences: Sequence of each token; None if the token is not to be read.
        scored: Requested log-probabilities.
        accepted: Number of leading tokens that are accepted drafts.
        broken: Indices of tokens sampled from non-finite logits; known once the tokens are on the host.
    """

    tokens: mx.array | list[int]
    sequences: tuple[Sequence | None, ...]
    scored: Scored | None = None
    accepted: int = 0
    broken: frozenset[int] = frozenset()

    @property
    def in_flight(self) -> bool:
        """True until the tokens have been awaited."""
        return isinstance(self.tokens, mx.array)

    def await_tokens(self) -> list[int]:
        """Wait for the tokens and return them."""
        tokens: Any = self.tokens
        if self.in_flight:
            tokens, self.broken = split_marks(tokens.tolist())
            self.tokens = tokens
        values: list[int] = tokens
        return values

    def await_scores(self) -> dict[int, Scores]:
        """Wait for the log-probabilities and return them by token index."""
        if self.scored is None:
            return {}
        scorer, scores = self.scored
        return scorer.by_row(scores)

    def discard(self, sequence: Sequence) -> None:
        """Discard the token of a preempted sequence, which will be sampled again."""
        self.sequences = tuple(None if member is sequence else member for member in self.sequences)
