"""Events that answer a request, in this order.

    QueueStatus*  Admitted  (PromptProgress | PromptText)*
        (TextDelta | ReasoningDelta | ToolCallDelta)*  Finished

There is one Finished per choice, or one Failed in place of the remaining events. The events in parentheses
are those of text generation. Other model types send `Vector*`, `Score*`, `AudioChunk*`, or
`Recording+ Segment*` instead. Between the turns of a model whose tools the server calls, there are those of
`tool_events`. Every event is plain data.
"""

from __future__ import annotations

from typing import Any, Literal

import attrs

from greenroom.schemas.events.explanation import Explanation
from greenroom.schemas.events.result_events import AudioChunk, Recording, Score, Segment, ToolEvent, Vector
from greenroom.schemas.messages.generation import GenerationParameters
from greenroom.schemas.problems import Problem

FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]
ToolLimit = Literal["", "max_turns", "max_tool_calls", "repeated_call"]


@attrs.frozen
class QueueStatus:
    """The position of a waiting request.

    Args:
        status: `queued` (for a slot), `waiting_for_model` (for memory in the pool), `downloading` (its files
            come from the hub), or `loading`.
        position: Number of requests for the model ahead of this one.
        eta_ms: Estimated milliseconds until the request is served; None if unknown.
        loading: Models that are loading: this one, or others that were given memory before it.
        unloading: Models that leave memory, some of them once their running requests have ended.
        required_bytes: Bytes of memory that the model needs; None until its files have been read.
        available_bytes: Bytes that other models leave of the limit now; None without a limit.
        loaded_bytes: Bytes of the model that have been loaded; None unless it is loading.
        download_bytes: Size of the files that it needs; None unless it is downloading, as for the next two.
        downloaded_bytes: Bytes of them that are on this machine.
        bytes_per_second: Rate at which they arrive.
    """

    status: Literal["queued", "waiting_for_model", "downloading", "loading"]
    position: int
    model: str
    eta_ms: int | None = None
    loading: tuple[str, ...] = ()
    unloading: tuple[str, ...] = ()
    required_bytes: int | None = None
    available_bytes: int | None = None
    loaded_bytes: int | None = None
    download_bytes: int | None = None
    downloaded_bytes: int | None = None
    bytes_per_second: int | None = None


@attrs.frozen
class Admitted:
    """Acceptance of a request whose prompt fits the context; later errors are events, not HTTP statuses.

    Args:
        prompt_tokens: Length of the prompt in tokens.
        dropped_messages: Number of oldest messages that were omitted from the prompt.
        system_prompt: The operator's system prompt, empty if there is none; None if the request has its own.
        parameters: Generation parameters in use, with `max_tokens` within the context; None for model types
            without any.
        notice: Sentence for the client about a wish that the model cannot fulfil; empty if there is none.
    """

    prompt_tokens: int
    dropped_messages: int = 0
    system_prompt: str | None = attrs.field(default=None, eq=False, repr=False)
    parameters: GenerationParameters | None = attrs.field(default=None, eq=False, repr=False)
    notice: str = attrs.field(default="", eq=False)


@attrs.frozen
class PromptProgress:
    """The progress of prefill; for text to speech, counts are in characters instead of tokens.

    Args:
        processed: Prompt tokens processed so far, including cached ones.
        total: Length of the prompt in tokens.
        cached: Prompt tokens taken from the prefix cache.
        seconds: Time since the first prefill chunk started, in seconds.
    """

    processed: int
    total: int
    cached: int = 0
    seconds: float = 0.0


@attrs.frozen(cache_hash=True)
class Token:
    """A token in the form that clients see.

    Args:
        text: Text of the token alone; an incomplete character becomes a replacement character.
        bytes: UTF-8 bytes of the token.
    """

    text: str
    bytes: bytes


@attrs.frozen
class TokenLogprob:
    """The log-probability of an answer token, before any parameter changed the model's distribution.

    Args:
        logprob: Natural logarithm of the token's probability.
        top: The requested number of top candidates at this position, in descending order.
    """

    token: Token
    logprob: float
    top: tuple[tuple[Token, float], ...] = ()


@attrs.frozen
class PromptText:
    """A piece of choice `index`'s prompt, sent before the answer to a client that requested an echo.

    Args:
        first: The prompt's first token, if the piece contains it; it has no log-probability.
        logprobs: Log-probabilities of the piece's other tokens, if requested.
    """

    text: str
    index: int = 0
    first: Token | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@attrs.frozen
class TextDelta:
    """A piece of choice `index`'s visible answer.

    Args:
        logprobs: Log-probabilities of the piece's tokens, if requested.
    """

    text: str
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


@attrs.frozen
class ReasoningDelta:
    """A piece of choice `index`'s reasoning."""

    text: str
    index: int = 0


@attrs.frozen
class ToolCallDelta:
    """A piece of a tool call.

    The first delta of a call carries `id` and `name`; later ones carry only argument text.

    Args:
        call: Index of the call within the choice, counted from 0.
        arguments: The next fragment of the arguments' JSON text; may be empty.
    """

    call: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    index: int = 0


def _amount(unit: str, *, shared: bool = False) -> Any:
    """Return an attrs field for an amount in `unit`; `shared` if the choices of a request share it."""
    return attrs.field(default=0, metadata={"unit": unit, "shared": shared})


@attrs.frozen
class Usage:
    """Resources used by a choice or by a whole request.

    A model type with another unit (seconds of audio, say) adds a field here. Fields that do not apply are 0.

    Args:
        prompt: Prompt tokens.
        generated: Generated tokens.
        cached: Tokens of `prompt` taken from the prefix cache.
        reasoning: Tokens of `generated` outside the visible answer.
        drafted: Tokens proposed by speculative decoding.
        accepted: Drafted tokens that were accepted into `generated`.
        written: Tokens of `prompt` that were newly inserted into the prefix cache.
        images: Tokens of `prompt` that represent images.
        heard: Input audio in seconds.
        spoken: Generated audio in seconds.
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
        added = (field.name for field in attrs.fields(Usage) if not field.metadata["shared"])
        return attrs.evolve(self, **{name: getattr(self, name) + getattr(choice, name) for name in added})

    def with_request(self, other: Usage) -> Usage:
        """Return the combined usage of this and another request."""
        names = [field.name for field in attrs.fields(Usage)]
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})

    def amounts(self) -> dict[str, Any]:
        """Return all amounts, keyed by log field name such as `generated_tokens`."""
        fields = attrs.fields(Usage)
        return {f"{field.name}_{field.metadata['unit']}": getattr(self, field.name) for field in fields}


@attrs.frozen
class Timing:
    """Seconds that a request spent waiting, in prefill, and decoding."""

    queued: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0


@attrs.frozen
class Finished:
    """The end of a choice.

    Args:
        stop: The stop string that matched, if one did.
        raw: The model's unparsed output, including markers of reasoning and tool calls, for storage.
        tokens: Token ids of the output.
        explanation: Explanation of the choice's cost; None if none is given.
        limit: Limit of the calls of tools that ended the answer early; empty if none did.
    """

    reason: FinishReason
    usage: Usage
    timing: Timing = Timing()
    stop: str | None = None
    index: int = 0
    raw: str = attrs.field(default="", kw_only=True, eq=False, repr=False)
    tokens: tuple[int, ...] = attrs.field(default=(), kw_only=True, eq=False, repr=False)
    explanation: Explanation | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)
    limit: ToolLimit = attrs.field(default="", kw_only=True)


@attrs.frozen
class Failed:
    """The failure of a request, before or during its answer.

    Args:
        usage: Usage of the unfinished choices; None if unknown.
        timing: Timing of the failed choice; None if unknown.
        explanation: Explanation of the failed choice's cost; None if none is given.
    """

    problem: Problem
    usage: Usage | None = None
    timing: Timing | None = None
    explanation: Explanation | None = attrs.field(default=None, kw_only=True, eq=False, repr=False)


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
    | ToolEvent
    | Finished
    | Failed
)
