"""Input items of a response (OpenAI's API reference, Open Responses)."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, NewType

import attrs

from greenroom.schemas.messages.messages import MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, JsonObject
from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.wire.wire import AtMost, WireError, make_wire_converter, structure, wrong_type

RESPONSES = make_wire_converter()


@attrs.frozen
class InputAudioParam:
    """An audio file, as base64."""

    data: str
    format: str


@attrs.frozen
class PartParam:
    """A content part of an item; `type` decides which fields it has."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_id: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    input_audio: InputAudioParam | None = None


@attrs.frozen
class Content:
    """The content of an item; a string on the wire becomes one part."""

    parts: tuple[PartParam, ...]


@attrs.frozen
class _OnePart:
    part: PartParam


def structure_part(part: JsonObject, field: str) -> PartParam:
    """Structure a single part from outside an item's content.

    Args:
        field: Request field of the part, for errors.

    Raises:
        ProblemError: 400 that names the invalid field.
    """
    try:
        return structure({"part": part}, _OnePart, RESPONSES).part
    except ProblemError as error:
        path = f"{field}{(error.problem.param or '').removeprefix('part')}"
        detail = error.problem.detail.replace(f"`{error.problem.param}`", f"`{path}`")
        raise invalid(detail, path, error.problem.code) from None


_Parts = Annotated[tuple[PartParam, ...], AtMost(MAX_PARTS)]


def _content(value: Any, _: Any) -> Content | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Content((PartParam("text", value),))
    if not isinstance(value, list):
        raise wrong_type("a string or an array of parts", value)
    return Content(RESPONSES.structure(value, _Parts))


def given(value: Any, hook: Any) -> Any:
    """Apply a structure hook to a value that must not be null.

    Raises:
        WireError: The value is null.
    """
    if value is None:
        raise WireError("must not be null")
    return hook(value, None)


RESPONSES.register_structure_hook(Content, lambda value, _: given(value, _content))
RESPONSES.register_structure_hook(Content | None, _content)


Role = Literal["user", "assistant", "system", "developer"]
Arguments = NewType("Arguments", str)
"""The arguments of a call, as JSON text."""

MAX_ITEMS = MAX_MESSAGES
MAX_ENCRYPTED_CONTENT = 10_485_760
"""Longest encrypted content, in characters (OpenAI's limit)."""
NOTE = "greenroom_note"
"""Marks messages that the server has put in place of what came before."""


@attrs.frozen
class _Common:
    """The fields that any item may have; none of them reaches the model."""

    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    phase: str | None = None


@attrs.frozen
class MessageItem:
    """A message item; it may lack a `type`."""

    role: Role
    content: Content


@attrs.frozen
class ReasoningItem:
    """A reasoning item of the assistant.

    Args:
        summary: Summary of the reasoning.
        content: Full reasoning text, where it may be shown.
        encrypted_content: Reasoning encrypted by a server.
    """

    summary: Content | None = None
    content: Content | None = None
    encrypted_content: str | None = None


@attrs.frozen
class FunctionCallItem:
    """A function call made by the assistant."""

    call_id: str
    name: str
    arguments: Arguments = Arguments("")


@attrs.frozen
class CustomCallItem:
    """A custom tool call made by the assistant; its input is text."""

    call_id: str
    name: str
    input: str


@attrs.frozen
class CallOutputItem:
    """The result of a function call or of a custom tool call."""

    call_id: str
    output: Content


@attrs.frozen
class CompactionItem:
    """The compacted form of an earlier conversation."""

    encrypted_content: str


@attrs.frozen
class ItemReference:
    """A reference to a stored item."""

    id: str


@attrs.frozen
class ToolsItem:
    """Tools added in the middle of a conversation."""

    tools: ToolParams


@attrs.frozen
class HostedItem:
    """An item of a tool hosted by OpenAI; its fields depend on its type."""

    type: str


@attrs.frozen
class ResolvedItem:
    """An item resolved into the items that it represents; clients never send one.

    Args:
        items: Represented items; none if the conversation already has them.
        replaces: True if the items also replace everything before them.
    """

    items: tuple[Item, ...]
    replaces: bool = False


ItemParam = (
    MessageItem
    | ReasoningItem
    | FunctionCallItem
    | CustomCallItem
    | CallOutputItem
    | CompactionItem
    | ItemReference
    | ToolsItem
    | HostedItem
    | ResolvedItem
)


@attrs.frozen
class Item:
    """An input item.

    Args:
        raw: JSON object as received.
    """

    param: ItemParam
    raw: JsonObject = attrs.field(eq=False, repr=False)


@attrs.frozen
class Items:
    """The input of a response; a string on the wire becomes one user message."""

    items: tuple[Item, ...]


@attrs.frozen
class _StoredItems:
    items: Items


def structure_items(items: list[JsonObject]) -> tuple[Item, ...]:
    """Structure items that were stored as JSON.

    Raises:
        ProblemError: 400 that names the invalid field (`items[3].role`).
    """
    return structure({"items": items}, _StoredItems, RESPONSES).items.items


ITEM_TYPES: dict[str, type[ItemParam]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
    "compaction": CompactionItem,
    "compaction_summary": CompactionItem,
    "item_reference": ItemReference,
    "additional_tools": ToolsItem,
    "tool_search_output": ToolsItem,
}

HOSTED_ITEMS = (
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction_trigger",
    "computer_call",
    "computer_call_output",
    "configuration_update",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "web_search_call",
)

_CALLED_BY_ID = ("local_shell_call_output", "mcp_approval_request")

_Items = Annotated[tuple[Item, ...], AtMost(MAX_ITEMS)]


def _item(value: Any, _: Any) -> Item:
    if not isinstance(value, dict):
        raise wrong_type("an object", value)
    kind = value.get("type")
    if kind is None:
        kind = "message" if "role" in value else "item_reference" if "id" in value else None
    RESPONSES.structure(value, _Common)
    if kind in HOSTED_ITEMS:
        return Item(HostedItem(kind), _with_call_id(kind, value))
    if not isinstance(kind, str) or kind not in ITEM_TYPES:
        raise WireError("has no `type` that is known here, and no `role`")
    param: ItemParam = RESPONSES.structure(value, ITEM_TYPES[kind])
    return Item(param, value)


def _with_call_id(kind: str, item: JsonObject) -> JsonObject:
    # OpenAI identifies these items' calls by the item's own id, which changes when the item is stored.
    if kind in _CALLED_BY_ID and item.get("call_id") is None and item.get("id"):
        return {**item, "call_id": item["id"]}
    return item


def _items(value: Any, _: Any) -> Items | None:
    if value is None:
        return None
    if isinstance(value, str):
        message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}
        return Items((_item(message, Item),))
    if not isinstance(value, list):
        raise wrong_type("a string or an array of items", value)
    return Items(RESPONSES.structure(value, _Items))


def _arguments(value: Any, _: Any) -> Arguments:
    if isinstance(value, dict):
        # Some clients return the arguments as a decoded object.
        return Arguments(json.dumps(value, ensure_ascii=False))
    if not isinstance(value, str):
        raise WireError("must be a string that holds JSON")
    return Arguments(value)


RESPONSES.register_structure_hook(Arguments, _arguments)
RESPONSES.register_structure_hook(Item, _item)
RESPONSES.register_structure_hook(Items, lambda value, _: given(value, _items))
RESPONSES.register_structure_hook(Items | None, _items)


@attrs.frozen
class FunctionTool:
    """The definition of a callable function."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


@attrs.frozen
class CustomTool:
    """The definition of a tool whose input is text, free or in a given format."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None
    defer_loading: bool | None = None


@attrs.frozen
class McpTool:
    """The tools of an MCP server: one of the settings by its label, or one by its address.

    Args:
        authorization: Token that is sent to the server; like `headers`, it is not repeated.
    """

    server_label: str
    server_url: str | None = None
    allowed_tools: Any = None
    require_approval: Any = None
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)
    authorization: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class HostedTool:
    """A tool hosted by OpenAI, which this server cannot run."""

    type: str


@attrs.frozen
class ToolParam:
    """The definition of a tool.

    Args:
        raw: JSON object as received.
    """

    param: FunctionTool | CustomTool | McpTool | HostedTool
    raw: JsonObject = attrs.field(eq=False, repr=False)


ToolParams = Annotated[tuple[ToolParam, ...], AtMost(MAX_TOOLS)]

_TOOL_TYPES: dict[str, type[FunctionTool | CustomTool | McpTool]] = {
    "function": FunctionTool,
    "custom": CustomTool,
    "mcp": McpTool,
}


@attrs.frozen
class _Typed:
    type: str


def _tool(value: Any, _: Any) -> ToolParam:
    if not isinstance(value, dict):
        raise wrong_type("an object", value)
    kind = RESPONSES.structure(value, _Typed).type
    if kind not in _TOOL_TYPES:
        return ToolParam(HostedTool(kind), value)
    param: FunctionTool | CustomTool | McpTool = RESPONSES.structure(value, _TOOL_TYPES[kind])
    return ToolParam(param, value)


RESPONSES.register_structure_hook(ToolParam, _tool)
