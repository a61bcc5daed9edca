"""Logits processors: penalties, logit biases and suppressed end tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from greenroom.engine.text.sampling.sampling_parameters import SamplingParameters


class TokenHistory(Protocol):
    """Interface to a row's tokens so far."""

    @property
    def prompt(self) -> Sequence[int]: ...

    @property
    def answer(self) -> Sequence[int]: ...


class LogitsProcessors:
    """Modifies logits `[rows, vocabulary]` of a fixed set of rows.

    Arrays hold the summands and divisors of the logits, and every step adds the newly read tokens to them.
    The result depends only on a row's own settings and tokens, not on its neighbours.

    Args:
        rows: Sampling parameters by row.
        positions: Number of tokens that each row has sampled before.
        histories: Tokens by row, which grow as they are read; None for a row whose token is never read.
    """

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        histories: Sequence[TokenHistory | None],
        vocabulary: int,
    ) -> None:
        self._rows = rows
        self._vocabulary = vocabulary
        self._histories = {
            index: history
            for index, (row, history) in enumerate(zip(rows, histories, strict=True))
            if row.has_penalties and history is not None
        }
        self._counted = dict.fromkeys(self._histories, 0)
        self._answered: dict[int, set[int]] = {index: set() for index in self._histories}
        self._added = mx.zeros((len(rows), vocabulary))
        self._divisor: mx.array | None = None
        self._apply_fixed(positions)

    def __call__(self, logits: mx.array) -> mx.array:
        """Return the modified logits, float32."""
        self._count_new_tokens()
        logits = logits.astype(mx.float32)
        if self._divisor is not None:
            # In this form a logit of minus infinity, set by a grammar mask, stays minus infinity.
            weakened = mx.maximum(logits, 0) / self._divisor
            logits = weakened + mx.minimum(logits, 0) * self._divisor
        return logits + self._added

    def _apply_fixed(self, positions: Sequence[int]) -> None:
        """Apply constant changes: biases, suppressed end tokens, and repetition penalties of prompts."""
        places: list[tuple[int, int]] = []
        amounts: list[float] = []
        for index, row in enumerate(self._rows):
            changes = dict(row.logit_bias)
            if positions[index] < row.min_tokens:
                changes |= dict.fromkeys(row.end_tokens, -float("inf"))
            inside = [(token, amount) for token, amount in changes.items() if token < self._vocabulary]
            places += [(index, token) for token, _ in inside]
            amounts += [amount for _, amount in inside]
        self._add(places, amounts)
        for index, history in self._histories.items():
            if self._rows[index].repetition_penalty != 1:
                self._weaken([(index, token) for token in set(history.prompt)])

    def _count_new_tokens(self) -> None:
        """Add penalties for the tokens read since the last step."""
        places: list[tuple[int, int]] = []
        amounts: list[float] = []
        repeated: list[tuple[int, int]] = []
        for index, history in self._histories.items():
            row, answered = self._rows[index], self._answered[index]
            tokens = history.answer[self._counted[index] :]
            self._counted[index] += len(tokens)
            for token in tokens:
                amount = row.frequency_penalty
                if token not in answered:
                    answered.add(token)
                    amount += row.presence_penalty
                    if row.repetition_penalty != 1:
                        repeated.append((index, token))
                places.append((index, token))
                amounts.append(-amount)
        self._add(places, amounts)
        self._weaken(repeated)

    def _add(self, places: list[tuple[int, int]], amounts: list[float]) -> None:
        if any(amounts):
            rows, tokens = (mx.array(numbers) for numbers in zip(*places, strict=True))
            self._added = self._added.at[rows, tokens].add(mx.array(amounts, dtype=mx.float32))

    def _weaken(self, places: list[tuple[int, int]]) -> None:
        if not places:
            return
        if self._divisor is None:
            self._divisor = mx.ones((len(self._rows), self._vocabulary))
        rows, tokens = (mx.array(numbers) for numbers in zip(*places, strict=True))
        penalties = mx.array([self._rows[index].repetition_penalty for index, _ in places])
        self._divisor[rows, tokens] = penalties
