"""Chat-style messages, which some clients send in place of a response's items."""

from __future__ import annotations

from typing import Annotated, Any

import attrs

from greenroom.schemas.messages.messages import MAX_CALLS, MAX_MESSAGES
from greenroom.schemas.responses.converter import RESPONSES
from greenroom.schemas.responses.items import (
    Arguments,
    CallOutputItem,
    FunctionCallItem,
    Item,
    ItemParam,
    MessageItem,
    ReasoningItem,
    Role,
)
from greenroom.schemas.responses.parts import Content, PartParam
from greenroom.schemas.wire import AtMost


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
