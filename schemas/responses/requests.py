"""Request bodies of `POST /v1/responses`, its `input_tokens` and `compact` (OpenAI's API reference)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NewType

import attrs

from greenroom.schemas.responses.chat_messages import ChatMessages
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.items import Items
from greenroom.schemas.responses.tools import ToolParams
from greenroom.schemas.wire import one_of

Truncation = NewType("Truncation", str)
Includable = NewType("Includable", str)
Summary = NewType("Summary", str)
ReasoningContext = NewType("ReasoningContext", str)
CacheRetention = NewType("CacheRetention", str)
CacheMode = NewType("CacheMode", str)

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

_CHOICES = {
    Truncation: ("auto", "disabled"),
    Summary: ("auto", "concise", "detailed"),
    ReasoningContext: ("auto", "current_turn", "all_turns"),
    CacheMode: ("implicit", "explicit"),
    CacheRetention: ("in_memory", "in-memory", "24h"),
    Includable: (
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        LOGPROBS,
        ENCRYPTED_REASONING,
        "web_search_call.action.sources",
        "web_search_call.results",
    ),
}


@attrs.frozen
class ReasoningParam:
    """Settings of reasoning; `generate_summary` is the old name of `summary`."""

    effort: str | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: ReasoningContext | None = None


@attrs.frozen
class TextParam:
    """The required format and verbosity of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Any = None


@attrs.frozen
class CacheOptions:
    """Options of prompt caching; they change nothing, since every prompt is cached if memory allows."""

    mode: CacheMode | None = None
    ttl: str | None = None


@attrs.frozen
class StreamOptions:
    """Options of a streamed response."""

    include_obfuscation: bool | None = None


@attrs.frozen
class ConversationParam:
    """A reference to a stored conversation; a string on the wire is its id."""

    id: str


@attrs.frozen(kw_only=True)
class PromptRequest:
    """The fields that determine the prompt's tokens.

    Args:
        messages: Alias of `input`, with chat-style messages.
        conversation_id: Alias of `conversation`.
        response_format: Alias of `text.format`, in the form of chat requests.
    """

    model: str | None = None
    input: Items | None = None
    messages: ChatMessages | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationParam | None = None
    conversation_id: str | None = None
    tools: ToolParams | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None
    response_format: dict[str, Any] | None = None
    truncation: Truncation | None = None


@attrs.frozen(kw_only=True)
class CompactRequest(PromptRequest):
    """The body of a compaction request; cache options have no effect, since every prompt is cached anyway."""

    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: CacheRetention | None = None


@attrs.frozen(kw_only=True)
class ResponseRequest(CompactRequest):
    """The body of a response request, without its generation parameters.

    A separate table describes those (`greenroom.http.responses.requests.parameters`).

    Args:
        client_metadata: Information that Codex sends about itself; ignored.
    """

    background: bool | None = None
    client_metadata: dict[str, Any] | None = None
    include: tuple[Includable, ...] | None = None
    max_tool_calls: int | None = None
    metadata: Any = None
    safety_identifier: str | None = None
    service_tier: Any = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None


def _choice_of(choices: tuple[str, ...]) -> Callable[[Any, Any], str]:
    return lambda value, _: one_of(choices, value)


def _conversation(value: Any, _: Any) -> ConversationParam | None:
    if value is None:
        return None
    if isinstance(value, str):
        return ConversationParam(value)
    return RESPONSES.structure(value, ConversationParam)


for _kind, _choices in _CHOICES.items():
    RESPONSES.register_structure_hook(_kind, _choice_of(_choices))
RESPONSES.register_structure_hook(ConversationParam | None, _conversation)
