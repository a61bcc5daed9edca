"""How the tokens of one sequence are sampled."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

import attrs

from greenroom.schemas.generation import GenerationParameters


@attrs.frozen
class SamplingParameters:
    """How the tokens of one sequence are sampled.

    Args:
        temperature: 0 is greedy.
        top_p: Nucleus; 1 is off.
        top_k: Likeliest tokens to choose from; 0 is off.
        min_p: Least probability, relative to the likeliest token's; 0 is off.
        seed: 32 bits that key the sequence's random stream.
        presence_penalty: Taken from the logits of tokens that the answer has.
        frequency_penalty: Likewise, for every time.
        repetition_penalty: Weakens the logits of tokens that prompt or answer have; 1 is off.
        logit_bias: Tokens and what is added to their logits.
        xtc_probability: How often xtc leaves out the likeliest tokens; 0 is off.
        xtc_threshold: What makes a token one of those.
        end_tokens: Tokens that end the answer.
        min_tokens: Tokens before which none of those is sampled.
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
        """Return the settings of one choice of a request; without a seed, nobody can repeat its tokens."""
        seed = parameters.seed
        return cls(
            temperature=parameters.temperature,
            top_p=parameters.top_p,
            top_k=parameters.top_k,
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
        """Whether the tokens so far change the logits."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def changes_logits(self) -> bool:
        """Whether the logits are changed before a token is sampled from them."""
        return self.has_penalties or bool(self.logit_bias) or self.min_tokens > 0


def fold_seed(seed: int, choice: int = 0) -> int:
    """Return a client's seed of any size as 32 well-mixed bits, others for every choice."""
    text = str(seed) if choice == 0 else f"{seed}/{choice}"
    return int.from_bytes(hashlib.blake2s(text.encode(), digest_size=4).digest(), "little")
