"""Request bodies of OpenAI's Responses and Conversations (API reference)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import attrs

from greenroom.schemas.messages.messages import MAX_CALLS, MAX_MESSAGES
from greenroom.schemas.wire.responses_items import (
    RESPONSES,
    Arguments,
    CallOutputItem,
    Content,
    FunctionCallItem,
    Item,
    ItemParam,
    Items,
    MessageItem,
    PartParam,
    ReasoningItem,
    Role,
    ToolParams,
)
from greenroom.schemas.wire.wire import AtMost

ENCRYPTED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

Includable = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
Summary = Literal["auto", "concise", "detailed"]


@attrs.frozen
class ReasoningParam:
    """Settings of reasoning; `generate_summary` is the old name of `summary`."""

    effort: str | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None


@attrs.frozen
class TextParam:
    """The required format and verbosity of the answer's text."""

    format: dict[str, Any] | None = None
    verbosity: Any = None


@attrs.frozen
class CacheOptions:
    """Options of prompt caching; they change nothing, since every prompt is cached if memory allows."""

    mode: Literal["implicit", "explicit"] | None = None
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
    truncation: Literal["auto", "disabled"] | None = None


@attrs.frozen(kw_only=True)
class CompactRequest(PromptRequest):
    """The body of a compaction request; cache options have no effect, since every prompt is cached anyway."""

    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None


@attrs.frozen(kw_only=True)
class ResponseRequest(CompactRequest):
    """The body of a response request, without its generation parameters.

    A separate table describes those (`greenroom.http.responses.request_parser`).

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


def _conversation(value: Any, _: Any) -> ConversationParam | None:
    if value is None:
        return None
    if isinstance(value, str):
        return ConversationParam(value)
    return RESPONSES.structure(value, ConversationParam)


RESPONSES.register_structure_hook(ConversationParam | None, _conversation)


@attrs.frozen
class ChatMessages:
    """A conversation converted to items."""

    items: tuple[Item, ...]


@attrs.frozen
class _ChatItems:
    """The items of one chat message."""

    items: tuple[Item, ...]


@attrs.frozen
class _Function:
    name: str
    arguments: Arguments = Arguments("")


@attrs.frozen
class _ChatCall:
    id: str
    function: _Function


@attrs.frozen
class _ToolMessage:
    tool_call_id: str
    content: Content


@attrs.frozen
class _ChatMessage:
    role: Role
    content: Content | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[tuple[_ChatCall, ...], AtMost(MAX_CALLS)] | None = None


_Messages = Annotated[tuple[_ChatItems, ...], AtMost(MAX_MESSAGES)]


def _messages(value: Any, _: Any) -> ChatMessages | None:
    if value is None:
        return None
    converted: tuple[_ChatItems, ...] = RESPONSES.structure(value, _Messages)
    return ChatMessages(tuple(item for message in converted for item in message.items))


def _message(value: Any, _: Any) -> _ChatItems:
    value = _with_item_parts(value)
    if isinstance(value, dict) and value.get("role") == "tool":
        result = RESPONSES.structure(value, _ToolMessage)
        return _ChatItems(
            (_item("function_call_output", CallOutputItem(result.tool_call_id, result.content)),)
        )
    message = RESPONSES.structure(value, _ChatMessage)
    items: list[Item] = []
    if message.reasoning_content:
        reasoning = RESPONSES.structure(message.reasoning_content, Content)
        items.append(_item("reasoning", ReasoningItem(summary=reasoning)))
    if message.content is not None or not message.tool_calls:
        content = message.content or Content(())
        items.append(_item("message", MessageItem(message.role, content)))
    for call in message.tool_calls or ():
        called = FunctionCallItem(call.id, call.function.name, call.function.arguments)
        items.append(_item("function_call", called))
    return _ChatItems(tuple(items))


def _item(kind: str, param: ItemParam) -> Item:
    """Return an item with its raw JSON form, as if a client had sent it."""
    raw: dict[str, Any] = {"type": kind, **attrs.asdict(param)}
    match param:
        case MessageItem(role, content):
            word = "output_text" if role == "assistant" else "input_text"
            raw["content"] = [_raw_part(part, word) for part in content.parts]
        case ReasoningItem(summary=Content(parts)):
            raw["summary"] = [{"type": "summary_text", "text": part.text or ""} for part in parts]
        case CallOutputItem(output=Content(parts)):
            raw["output"] = "".join(part.text or "" for part in parts)
            if any(part.type.startswith("input_") and part.text is None for part in parts):
                raw["output"] = [_raw_part(part, "input_text") for part in parts]
    return Item(param, {name: member for name, member in raw.items() if member is not None})


def _raw_part(part: PartParam, word: str) -> dict[str, Any]:
    if part.type.startswith("input_") and part.type != "input_text":
        return {name: member for name, member in attrs.asdict(part).items() if member is not None}
    return {"type": word, "text": part.text or part.refusal or ""}


def _with_item_parts(message: Any) -> Any:
    """Return a message with its image and file parts converted to the form of items."""
    content = message.get("content") if isinstance(message, dict) else None
    return {**message, "content": list(map(_item_part, content))} if isinstance(content, list) else message


def _item_part(part: Any) -> Any:
    match part:
        case {"type": "image_url", "image_url": str() as url}:
            return {"type": "input_image", "image_url": url}
        case {"type": "image_url", "image_url": dict() as image}:
            return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail")}
        case {"type": "file", "file": dict() as file}:
            return {**file, "type": "input_file"}
    return part


RESPONSES.register_structure_hook(_ChatItems, _message)
RESPONSES.register_structure_hook(ChatMessages | None, _messages)


MAX_NEW_ITEMS = 20
"""Maximum number of new items in a request."""

NewItems = Annotated[tuple[Item, ...], AtMost(MAX_NEW_ITEMS)]


@attrs.frozen
class CreateRequest:
    """The body of `POST /v1/conversations`."""

    items: NewItems | None = None
    metadata: Any = None


@attrs.frozen
class UpdateRequest:
    """The body of `POST /v1/conversations/{id}`."""

    metadata: Any


@attrs.frozen
class AddItemsRequest:
    """The body of `POST /v1/conversations/{id}/items`."""

    items: NewItems
