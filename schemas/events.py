"""What comes back while a request is answered, in the order of a request's life.

    QueueStatus*  Admitted  PromptProgress*  (TextDelta | ReasoningDelta | ToolCallDelta)*  Finished

with one Finished per choice, or one Failed instead of what had still to come.
"""

from __future__ import annotations

from typing import Literal

import attrs

from greenroom.schemas.problems import Problem

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


@attrs.frozen
class QueueStatus:
    """The request waits (document 004, Queue Status).

    Args:
        status: `queued` for a slot, `waiting_for_model` for room in the pool, or `loading`.
        position: How many requests stand before this one.
        model: Public id of the model.
        eta_ms: Milliseconds until it is probably served, where that is known.
    """

    status: Literal["queued", "waiting_for_model", "loading"]
    position: int
    model: str
    eta_ms: int | None = None


@attrs.frozen
class Admitted:
    """The prompt is tokenised and fits: from here on errors are events, not HTTP statuses.

    Args:
        prompt_tokens: Length of the prompt in tokens.
    """

    prompt_tokens: int


@attrs.frozen
class PromptProgress:
    """Part of the prompt is computed.

    Args:
        processed: Tokens done, cached ones included.
        total: Tokens of the whole prompt.
        cached: Tokens that were known and need not be computed.
        seconds: Time since its first slice began.
    """

    processed: int
    total: int
    cached: int = 0
    seconds: float = 0.0


@attrs.frozen(cache_hash=True)
class Token:
    """A token as clients see it.

    Args:
        text: As it reads on its own; a part of a character is a replacement character.
        bytes: What it writes, in UTF-8.
    """

    text: str
    bytes: bytes


@attrs.frozen
class TokenLogprob:
    """How probable a token of the answer was, before any setting changed the model's distribution.

    Args:
        logprob: Natural logarithm of its probability.
        top: The likeliest tokens in its place, falling, as many as were asked for.
    """

    token: Token
    logprob: float
    top: tuple[tuple[Token, float], ...] = ()


@attrs.frozen
class TextDelta:
    """A piece of the visible answer of choice `index`.

    Args:
        logprobs: Of the tokens that wrote it, if they were asked for.
    """

    text: str
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@attrs.frozen
class ReasoningDelta:
    """A piece of the thought that precedes the answer of choice `index`."""

    text: str
    index: int = 0


@attrs.frozen
class ToolCallDelta:
    """A piece of a tool call.

    The first delta of a call carries `id` and `name`; later ones carry only argument text.

    Args:
        call: Which call of the choice, dense from 0.
        arguments: The next fragment of the arguments' JSON text; may be empty.
    """

    call: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    index: int = 0


@attrs.frozen
class Usage:
    """Tokens of one request. `reasoning` is part of `generated`, `cached` is part of `prompt`.

    Args:
        drafted: Tokens that were proposed to the model by speculation.
        accepted: Those of them that became part of `generated`.
    """

    prompt: int
    generated: int
    cached: int = 0
    reasoning: int = 0
    drafted: int = 0
    accepted: int = 0


@attrs.frozen
class Timing:
    """Seconds that a request spent waiting, computing its prompt, and generating."""

    queued: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


@attrs.frozen
class Finished:
    """A choice is complete.

    Args:
        reason: Why it ended (document 004, FinishReason).
        stop: The stop string that matched, if one did.
    """

    reason: FinishReason
    usage: Usage
    timing: Timing = Timing()
    stop: str | None = None
    index: int = 0


@attrs.frozen
class Failed:
    """The request cannot be answered (any further)."""

    problem: Problem


InferenceEvent = (
    QueueStatus | Admitted | PromptProgress | TextDelta | ReasoningDelta | ToolCallDelta | Finished | Failed
)
