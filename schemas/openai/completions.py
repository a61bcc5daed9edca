"""Request bodies of `POST /v1/completions`: raw text or token ids to continue."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.schemas.openai.chat import StreamOptions
from greenroom.schemas.openai.converter import OPENAI
from greenroom.schemas.wire import WireError, wrong_type

MAX_PROMPTS = 128
"""Maximum number of prompts in a request; each gets its own answer."""


@attrs.frozen
class Prompts:
    """The prompts to continue; each yields one choice."""

    prompts: tuple[str | tuple[int, ...], ...]


@attrs.frozen
class CompletionRequest:
    """The body of a completion request; separate tables describe parameters and formats, as for a chat."""

    model: str
    prompt: Prompts
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Any = None
    max_tokens: Any = None
    n: Any = None
    best_of: Any = None


def _prompts(value: Any, _: Any) -> Prompts:
    if isinstance(value, str):
        return Prompts((value,))
    if not isinstance(value, list):
        raise wrong_type("a string, an array of strings, or arrays of token ids", value)
    if not value:
        raise WireError("must not be empty")
    if not isinstance(value[0], str | list):
        return Prompts((_tokens(value),))
    if len(value) > MAX_PROMPTS:
        raise WireError(f"must hold at most {MAX_PROMPTS} prompts")
    return Prompts(tuple(prompt if isinstance(prompt, str) else _tokens(prompt) for prompt in value))


def _tokens(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(token) is int and token >= 0 for token in value):
        raise WireError("must be a string, an array of strings, or arrays of token ids")
    return tuple(value)


OPENAI.register_structure_hook(Prompts, _prompts)
