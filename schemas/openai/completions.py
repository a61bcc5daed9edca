"""What clients of `POST /v1/completions` send: raw text or token ids to be continued."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.openai.chat import StreamOptions
from greenroom.schemas.wire import OPENAI, WireError, wrong_type

MOST_PROMPTS = 128


@attrs.frozen
class Prompts:
    """What is to be continued: each prompt becomes one choice."""

    prompts: tuple[str | tuple[int, ...], ...]


@attrs.frozen
class CompletionRequest:
    """The body of the request; generation parameters are checked against their own table."""

    model: str
    prompt: Prompts
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    max_tokens: Any = None
    temperature: Any = None
    top_p: Any = None
    top_k: Any = None
    min_p: Any = None
    stop: Any = None
    stop_token_ids: Any = None
    min_tokens: Any = None
    ignore_eos: Any = None
    seed: Any = None
    n: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    repetition_penalty: Any = None
    logit_bias: Any = None
    xtc_probability: Any = None
    xtc_threshold: Any = None
    logprobs: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None


def _prompts(value: Any, _: Any) -> Prompts:
    if isinstance(value, str):
        return Prompts((value,))
    if not isinstance(value, list):
        raise wrong_type("a string, an array of strings, or arrays of token ids", value)
    if not value:
        raise WireError("must not be empty")
    if not isinstance(value[0], str | list):
        return Prompts((_tokens(value),))
    if len(value) > MOST_PROMPTS:
        raise WireError(f"must hold at most {MOST_PROMPTS} prompts")
    return Prompts(tuple(prompt if isinstance(prompt, str) else _tokens(prompt) for prompt in value))


def _tokens(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise WireError("must be a string, an array of strings, or arrays of token ids")
    return tuple(value)


OPENAI.register_structure_hook(Prompts, _prompts)
