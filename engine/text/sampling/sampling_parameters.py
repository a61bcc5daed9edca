"""Sampling parameters of one sequence."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

import attrs

from greenroom.schemas.messages.generation import GenerationParameters

_SMALLEST_NUCLEUS = 1e-9
"""A probability that the most likely token alone exceeds, in place of 0."""


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
        frequency_penalty: Amount subtracted for each occurrence in the answer.
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
        """True if previous tokens change the logits."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def changes_logits(self) -> bool:
        """True if logits processors apply before sampling."""
        return self.has_penalties or bool(self.logit_bias) or self.min_tokens > 0


def fold_seed(seed: int, choice: int = 0) -> int:
    """Hash a client's seed of any size to 32 bits, different for every choice."""
    text = str(seed) if choice == 0 else f"{seed}/{choice}"
    return int.from_bytes(hashlib.blake2s(text.encode(), digest_size=4).digest(), "little")
