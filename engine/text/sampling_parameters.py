"""Sampling parameters of one sequence, its logits processors, and rows whose logits are broken."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs
import mlx.core as mx

from greenroom.schemas.messages.generation import GenerationParameters

_SMALLEST_NUCLEUS = 1e-9  # A probability that the most likely token alone exceeds, in place of 0


@attrs.frozen
class SamplingParameters:
    """Sampling parameters of one sequence.

    Args:
        temperature: Temperature; 0 is greedy.
        top_p: Probability of the nucleus; 1 is off.
        top_k: Number of most probable tokens to choose from; 0 is off.
        min_p: Minimum probability relative to the most probable token; 0 is off.
        seed: 32-bit key of the sequence's random stream.
        presence_penalty: Amount subtracted from the logits of tokens already in the answer.
        repetition_penalty: Divisor of positive logits of tokens in the prompt or answer (negative logits are
            multiplied by it); 1 is off.
        logit_bias: Token ids with the amounts added to their logits.
        xtc_probability: Probability that xtc excludes the most probable tokens; 0 is off.
        xtc_threshold: Probability from which xtc counts a token among the most probable ones.
        end_tokens: Ids of tokens that end the answer.
        min_tokens: Number of tokens to sample before an end token is allowed.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = attrs.field(factory=lambda: secrets.randbits(32))
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    end_tokens: tuple[int, ...] = ()
    min_tokens: int = 0

    @classmethod
    def of(
        cls, parameters: GenerationParameters, end_tokens: Iterable[int] = (), choice: int = 0
    ) -> SamplingParameters:
        """Return the parameters of one choice of a request, with a random seed if the client sent none."""
        seed = parameters.seed
        return cls(
            temperature=parameters.temperature,
            top_p=max(parameters.top_p, _SMALLEST_NUCLEUS),
            top_k=max(parameters.top_k, 0),
            min_p=parameters.min_p,
            seed=secrets.randbits(32) if seed is None else fold_seed(seed, choice),
            presence_penalty=parameters.presence_penalty,
            frequency_penalty=parameters.frequency_penalty,
            repetition_penalty=parameters.repetition_penalty,
            logit_bias=parameters.logit_bias,
            xtc_probability=parameters.xtc_probability,
            xtc_threshold=parameters.xtc_threshold,
            end_tokens=tuple(sorted(end_tokens)),
            min_tokens=2**31 if parameters.ignore_eos else parameters.min_tokens,
        )

    @property
    def has_penalties(self) -> bool:
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def changes_logits(self) -> bool:
        """True if logits processors apply before sampling."""
        return self.has_penalties or bool(self.logit_bias) or self.min_tokens > 0


def fold_seed(seed: int, choice: int = 0) -> int:
    """Hash a client's seed of any size to 32 bits, different for every choice."""
    text = str(seed) if choice == 0 else f"{seed}/{choice}"
    return int.from_bytes(hashlib.blake2s(text.encode(), digest_size=4).digest(), "little")


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
            changes = {token: amount for token, amount in changes.items() if token < self._vocabulary}
            places += [(index, token) for token in changes]
            amounts += changes.values()
        self._add(places, amounts)
        for index, history in self._histories.items():
            if self._rows[index].repetition_penalty != 1:
                # Image tokens can lie beyond the logits.
                inside = (token for token in set(history.prompt) if token < self._vocabulary)
                self._weaken([(index, token) for token in inside])

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


_MARK = 1 << 31  # Bit above every token id in the uint32 tokens sent to the host


def mark_broken(tokens: mx.array, logits: mx.array) -> mx.array:
    """Mark the tokens `[rows]` (uint32) of rows whose logits are not finite.

    The host learns of broken rows together with the tokens, without another wait. Nothing is evaluated.

    Args:
        logits: The model's own logits, `[rows, vocabulary]`; grammar masks would make many of them infinite.
    """
    return mx.where(mx.isfinite(mx.max(logits, axis=-1)), tokens, tokens | _MARK)


def split_marks(marked: Sequence[int]) -> tuple[list[int], frozenset[int]]:
    if max(marked, default=0) < _MARK:
        return list(marked), frozenset()
    broken = frozenset(index for index, token in enumerate(marked) if token >= _MARK)
    return [token & (_MARK - 1) for token in marked], broken
