"""Tokens that are sampled, or being sampled, and that the host has not read yet."""

from __future__ import annotations

from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.sampling.broken_rows import split_marks
from greenroom.engine.sampling.logprobs import Scored, Scores
from greenroom.engine.sequences.sequence import Sequence


@attrs.define(eq=False)
class PendingTokens:
    """One token for each row of a batch, or several of a sequence that is alone.

    Args:
        tokens: `[tokens]`, marked where they are none (`mark_broken`); a list when they are on the host.
        sequences: Whose they are; None where the token is not to be read.
        scored: Log-probabilities of those of them that are to have some.
        accepted: How many of them, from the first on, were drafted.
        broken: Indexes of those that were sampled from what is no number; known once they are on the host.
    """

    tokens: mx.array | list[int]
    sequences: tuple[Sequence | None, ...]
    scored: Scored | None = None
    accepted: int = 0
    broken: frozenset[int] = frozenset()

    @property
    def in_flight(self) -> bool:
        """Whether nothing has waited for the tokens yet."""
        return isinstance(self.tokens, mx.array)

    def await_tokens(self) -> list[int]:
        """Return the tokens on the host. Waits."""
        tokens: Any = self.tokens
        if self.in_flight:
            tokens, self.broken = split_marks(tokens.tolist())
            self.tokens = tokens
        values: list[int] = tokens
        return values

    def await_scores(self) -> dict[int, Scores]:
        """Return log-probabilities by the index of their token. Waits."""
        if self.scored is None:
            return {}
        scorer, scores = self.scored
        return scorer.by_row(scores)

    def discard(self, sequence: Sequence) -> None:
        """Drop the token of a sequence that is preempted: it will be sampled anew."""
        self.sequences = tuple(None if member is sequence else member for member in self.sequences)
