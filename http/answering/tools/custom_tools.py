"""OpenAI's custom tools, whose input is text, as chat and Responses share them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from greenroom.schemas.messages.messages import TextInput, Tool, ToolCall
from greenroom.schemas.messages.requests import ChatInput, InferenceRequest
from greenroom.schemas.messages.text_tools import arguments_of, text_tool
from greenroom.schemas.problems import ProblemError, invalid, missing
from greenroom.schemas.wire import json_type

_SYNTAXES = ("lark", "regex")


def parse_custom_tool(wire: Any, field: str) -> Tool:
    """Return a custom tool.

    Args:
        wire: Object with the tool's name, description and format. Responses puts a grammar into the format
            itself, chat into its member `grammar`.
        field: Path of that object.

    Raises:
        ProblemError: 400 that names the field.
    """
    if not isinstance(wire, dict):
        raise missing(field) if wire is None else _wrong(field, "an object", wire)
    name, description = wire.get("name"), wire.get("description")
    if name is None:
        raise missing(f"{field}.name")
    if not isinstance(name, str) or not name:
        raise invalid(f"`{field}.name` must be a string that is not empty.", f"{field}.name")
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{field}.description", "a string", description)
    takes, param = _text_input(wire.get("format"), f"{field}.format")
    return text_tool(name, description or "", takes, param)


def custom_call(call_id: str, name: str, text: str) -> ToolCall:
    return ToolCall(call_id, name, arguments_of(text))


def custom_names_of(request: InferenceRequest) -> frozenset[str]:
    tools = request.input.tools if isinstance(request.input, ChatInput) else ()
    return frozenset(tool.name for tool in tools if tool.input is not None)


def check_names(tools: Iterable[Tool], fields: Iterable[str]) -> None:
    """Refuse a custom tool with the name of another tool: their calls could not be told apart.

    Args:
        fields: Path of each tool.

    Raises:
        ProblemError: 400 that names the field.
    """
    seen: dict[str, Tool] = {}
    for tool, field in zip(tools, fields, strict=True):
        other = seen.setdefault(tool.name, tool)
        if other is not tool and (tool.input is not None or other.input is not None):
            detail = f"`{field}` has the name {tool.name[:80]!r}, which another tool already has."
            raise invalid(detail, field)


def _text_input(wire: Any, field: str) -> tuple[TextInput, str]:
    """Return the text format of a tool, and the path of its definition."""
    if wire is None:
        return TextInput(), field
    if not isinstance(wire, dict):
        raise _wrong(field, "an object", wire)
    match wire.get("type"):
        case "text":
            return TextInput(), field
        case "grammar":
            pass
        case _:
            raise invalid(f"`{field}.type` must be 'text' or 'grammar'.", f"{field}.type")
    grammar = wire
    if wire.get("grammar") is not None:
        grammar, field = wire["grammar"], f"{field}.grammar"
        if not isinstance(grammar, dict):
            raise _wrong(field, "an object", grammar)
    syntax, definition = grammar.get("syntax"), grammar.get("definition")
    if syntax not in _SYNTAXES:
        raise invalid(f"`{field}.syntax` must be 'lark' or 'regex'.", f"{field}.syntax")
    field = f"{field}.definition"
    if definition is None:
        raise missing(field)
    if not isinstance(definition, str):
        raise _wrong(field, "a string", definition)
    if not definition.isascii() and not _is_text(definition):
        raise invalid(f"`{field}` contains half of a surrogate pair, which is not valid text.", field)
    return TextInput(syntax, definition), field


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong(field: str, expected: str, value: Any) -> ProblemError:
    return invalid(f"`{field}` must be {expected}, but is {json_type(value)}.", field)
