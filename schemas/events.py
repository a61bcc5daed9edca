"""What comes back while a request is answered, in the order of a request's life.

    QueueStatus*  Admitted  (PromptProgress | PromptText)*
        (TextDelta | ReasoningDelta | ToolCallDelta)*  Finished

with one Finished per choice, or one Failed instead of what had still to come. The events in parentheses are
those of text; in their place other kinds of model have their own: `Vector*`, `Score*`, `AudioChunk*`, or
`Recording+ Segment*`. Every event is plain data.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.generation import GenerationParameters
from greenroom.schemas.problems import Problem
from greenroom.schemas.result_events import AudioChunk, Recording, Score, Segment, Vector

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
    """The prompt is prepared and fits: from here on errors are events, not HTTP statuses.

    Args:
        prompt_tokens: Length of the prompt in tokens.
        dropped_messages: How many of the oldest messages were left out of it.
        system_prompt: The operator's that it begins with, empty for none; None if the request has its own.
        parameters: As resolved for the answer, where the kind has any.
    """

    prompt_tokens: int
    dropped_messages: int = 0
    system_prompt: str | None = attrs.field(default=None, eq=False, repr=False)
    parameters: GenerationParameters | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class PromptProgress:
    """Part of the prompt is computed; of a text that is spoken, characters are counted in place of tokens.

    Args:
        processed: Tokens done, cached ones included.
        total: Tokens of the whole prompt.
        cached: Tokens that were known and need not be computed.
        seconds: Time since its first chunk began.
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
class PromptText:
    """A piece of the prompt of choice `index`, for a client that wants it back, before the answer.

    Args:
        first: The prompt's first token, if that is in the piece: no log-probability tells anything of it.
        logprobs: Of its other tokens, if they were asked for.
    """

    text: str
    index: int = 0
    first: Token | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


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


def _amount(unit: str, *, shared: bool = False) -> Any:
    """Return the field of an amount in `unit`; `shared` if the choices of a request have it in common."""
    return attrs.field(default=0, metadata={"unit": unit, "shared": shared})


@attrs.frozen
class Usage:
    """What a choice used, or a whole request, in the units of its kind of model.

    A kind that counts something else (seconds of audio, say) adds a field with its unit here; what a kind
    does not count is 0.

    Args:
        prompt: Tokens of the prompt.
        generated: Tokens of the answer.
        cached: Those of `prompt` that were known and not computed.
        reasoning: Those of `generated` that are no part of the visible answer.
        drafted: Tokens that were proposed to the model by speculation.
        accepted: Those of them that became part of `generated`.
        written: Those of `prompt` that are kept from now on, for prompts that begin so.
        images: Those of `prompt` that stand for images.
        heard: Seconds of audio that were given to the model.
        spoken: Seconds of audio that it made.
    """

    prompt: int = _amount("tokens", shared=True)
    generated: int = _amount("tokens")
    cached: int = _amount("tokens", shared=True)
    reasoning: int = _amount("tokens")
    drafted: int = _amount("tokens")
    accepted: int = _amount("tokens")
    written: int = _amount("tokens", shared=True)
    images: int = _amount("tokens", shared=True)
    heard: float = _amount("seconds", shared=True)
    spoken: float = _amount("seconds")

    def plus(self, choice: Usage) -> Usage:
        """Return what this and a further choice of the same request used together."""
        added = (field.name for field in attrs.fields(Usage) if not field.metadata["shared"])
        return attrs.evolve(self, **{name: getattr(self, name) + getattr(choice, name) for name in added})

    def amounts(self) -> dict[str, Any]:
        """Return every amount by its name and unit, as logs call it: `generated_tokens`."""
        fields = attrs.fields(Usage)
        return {f"{field.name}_{field.metadata['unit']}": getattr(self, field.name) for field in fields}


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
        raw: All that the model wrote, markers of thoughts and calls included, for whoever keeps it.
    """

    reason: FinishReason
    usage: Usage
    timing: Timing = Timing()
    stop: str | None = None
    index: int = 0
    raw: str = attrs.field(default="", kw_only=True, eq=False, repr=False)


@attrs.frozen
class Failed:
    """The request cannot be answered (any further).

    Args:
        usage: What the choices used that had not ended, where that is known.
        timing: Of the choice that failed, where that is known.
    """

    problem: Problem
    usage: Usage | None = None
    timing: Timing | None = None


InferenceEvent = (
    QueueStatus
    | Admitted
    | PromptProgress
    | PromptText
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | Vector
    | Score
    | AudioChunk
    | Recording
    | Segment
    | Finished
    | Failed
)
