"""Generation parameters as typed keywords, for programs that make requests of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, Unpack

from greenroom.schemas.messages.generation import Overrides, check


class Parameters(TypedDict, total=False):
    """Generation parameters that a request may set; `GenerationParameters` has their meanings and ranges."""

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    min_tokens: int
    ignore_eos: bool
    seed: int
    n: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: Mapping[int, float]
    xtc_probability: float
    xtc_threshold: float
    logprobs: bool
    top_logprobs: int
    thinking_budget: int


def parameters(**values: Unpack[Parameters]) -> Overrides:
    """Return parameters for an `InferenceRequest`; omitted ones come from the settings or the model.

    Raises:
        TypeError: There is no parameter of that name.
        ProblemError: A value is out of its range; the problem names the range.
    """
    if unknown := values.keys() - Parameters.__annotations__.keys():
        raise TypeError(f"parameters() got an unexpected keyword argument '{min(unknown)}'")
    return {name: check(name, value) for name, value in values.items()}
