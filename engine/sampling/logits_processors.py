"""Penalties, biases and forbidden end tokens: what changes the logits of some rows before a draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from greenroom.engine.sampling.sampling_parameters import SamplingParameters


class Written(Protocol):
    """The tokens of a row so far."""

    @property
    def prompt(self) -> Sequence[int]: ...

    @property
    def answer(self) -> Sequence[int]: ...


class LogitsProcessors:
    """Changes logits `[rows, vocabulary]` of a fixed set of rows.

    What is added to the logits, and by what they are divided, is held in arrays to which every step adds the
    tokens that were read since: a function of settings and tokens alone, whoever the neighbours are.

    Args:
        rows: Settings by row.
        positions: How many tokens each row has drawn before.
        written: Tokens by row, which grow as they are read; None for a row whose token nobody will read.
    """

    def __init__(
        self,
        rows: Sequence[SamplingParameters],
        positions: Sequence[int],
        written: Sequence[Written | None],
        vocabulary: int,
    ) -> None:
        self._rows = rows
        self._vocabulary = vocabulary
        self._written = written
        self._penalised = [i for i, row in enumerate(rows) if row.penalises and written[i] is not None]
        self._read = dict.fromkeys(self._penalised, 0)
        self._answered: dict[int, set[int]] = {i: set() for i in self._penalised}
        self._added = mx.zeros((len(rows), vocabulary))
        self._divisor: mx.array | None = None
        self._prepare(positions)

    def __call__(self, logits: mx.array) -> mx.array:
        """The adjusted logits, float32."""
        self._take_new()
        logits = logits.astype(mx.float32)
        if self._divisor is not None:
            # Written so that a logit of minus infinity, which a grammar has forbidden, remains one.
            weakened = mx.maximum(logits, 0) / self._divisor
            logits = weakened + mx.minimum(logits, 0) * self._divisor
        return logits + self._added

    def _prepare(self, positions: Sequence[int]) -> None:
        """What does not change: biases, end tokens, and the penalties of prompts."""
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
        for index in self._penalised:
            written = self._written[index]
            if self._rows[index].repetition_penalty != 1 and written is not None:
                self._weaken([(index, token) for token in set(written.prompt)])

    def _take_new(self) -> None:
        """Account for the tokens that were read since the last step."""
        places: list[tuple[int, int]] = []
        amounts: list[float] = []
        weakened: list[tuple[int, int]] = []
        for index in self._penalised:
            row, written, answered = self._rows[index], self._written[index], self._answered[index]
            tokens = written.answer[self._read[index] :] if written is not None else ()
            self._read[index] += len(tokens)
            for token in tokens:
                amount = row.frequency_penalty
                if token not in answered:
                    answered.add(token)
                    amount += row.presence_penalty
                    if row.repetition_penalty != 1:
                        weakened.append((index, token))
                places.append((index, token))
                amounts.append(-amount)
        self._add(places, amounts)
        self._weaken(weakened)

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
