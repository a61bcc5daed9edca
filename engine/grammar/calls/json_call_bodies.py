"""Grammars of calls whose arguments are one JSON object, up to the end of the call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar.calls.call_syntax import Body
from greenroom.engine.grammar.calls.text_arguments import json_arguments
from greenroom.engine.grammar.lark.lark_text import SPACE, literal

if TYPE_CHECKING:
    from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def json_call(
    text: GrammarBuilder,
    tools: tuple[ConstrainedTool, ...],
    key: str,
    many: bool = False,
    name_key: str = "name",
    first: Mapping[str, Any] = _NOTHING,
) -> str:
    """Return the expression of a JSON object with the tool's name and arguments, or of an array of them.

    Args:
        key: Key of the arguments.
        many: True for an array of one or more calls.
        name_key: Key of the name.
        first: Schemas of properties before the name.
    """
    if any(tool.grammar is not None for tool in tools):
        return _written_calls(text, tools, key, many, name_key, first)
    base = "#/items" if many else "#"
    calls = []
    for index, tool in enumerate(tools):
        place = f"{base}/anyOf/{index}/properties/{key}"
        properties = {**first, name_key: {"const": tool.name}, key: tool.schema(place)}
        closed = {"required": list(properties), "additionalProperties": False}
        calls.append({"type": "object", "properties": properties, **closed})
    call: Any = {"anyOf": calls}
    return text.json({"type": "array", "minItems": 1, "items": call} if many else call)


def _written_calls(
    text: GrammarBuilder,
    tools: tuple[ConstrainedTool, ...],
    key: str,
    many: bool,
    name_key: str,
    first: Mapping[str, Any],
) -> str:
    """Return the expression of `json_call` for tools of which some have a grammar instead of a schema."""
    plain = tuple(tool for tool in tools if tool.grammar is None)
    calls = [json_call(text, plain, key, False, name_key, first)] if plain else []
    before = "".join(
        f"{literal(f'{{{chr(34)}{name}{chr(34)}: ')} {text.json(first[name])} " for name in first
    )
    opening = ", " if first else "{"
    for tool in tools:
        if tool.grammar is not None:
            head = f"{opening}{json.dumps(name_key)}: {json.dumps(tool.name)}, {json.dumps(key)}: "
            calls.append(f'{before}{literal(head)} {json_arguments(text, tool)} "}}"')
    call = text.rule(" | ".join(calls))
    return f'"[" {SPACE} {call} ({SPACE} "," {SPACE} {call})* {SPACE} "]"' if many else call


def alternatives(
    tools: tuple[ConstrainedTool, ...], written: Callable[[ConstrainedTool, str], str], text: GrammarBuilder
) -> str:
    """Return the expression of a call to any of the tools."""
    return "(" + " | ".join(written(tool, json_arguments(text, tool)) for tool in tools) + ")"


def tagged_lines(end: str) -> Body:
    """Return the body of consecutive JSON objects, up to an end marker."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, "arguments")
        return f"{SPACE} {call} {f'({SPACE} {call})*' if many else ''} {SPACE} {text.fixed_text(end)}"

    return body


def tagged_array(end: str, key: str = "arguments", name_key: str = "name", numbered: bool = False) -> Body:
    """Return the body of an array of JSON objects, up to an end marker.

    Args:
        numbered: True if each object starts with an id.
    """
    first = {"tool_call_id": {"type": "string", "pattern": "^[0-9]{1,2}$"}} if numbered else _NOTHING

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, key, many, name_key, first)
        array = call if many else f'"[" {SPACE} {call} {SPACE} "]"'
        return f"{SPACE} {array} {SPACE} {text.fixed_text(end)}"

    return body


def json_list(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    """Return the expression of an array of calls."""
    if many:
        return f"{SPACE} {json_call(text, tools, 'arguments', many=True)}"
    return f'{SPACE} "[" {json_call(text, tools, "arguments")} "]"'


def open_list(key: str) -> Body:
    """Return the body of an array of calls, behind its opening bracket."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, key)
        more = f'("," {SPACE} {call})*' if many else ""
        return f'{SPACE} {call} {more} {SPACE} "]"'

    return body


def keyed_call(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool = False) -> str:
    """Return the expression of a JSON object whose only key is the tool's name, or of an array of them."""
    if any(tool.grammar is not None for tool in tools):
        written = [
            f'{literal(f"{{{json.dumps(tool.name)}: ")} {json_arguments(text, tool)} "}}"' for tool in tools
        ]
        one = text.rule(" | ".join(written))
        return f'"[" {SPACE} {one} ({SPACE} "," {SPACE} {one})* {SPACE} "]"' if many else one
    base = "#/items" if many else "#"
    calls = []
    for index, tool in enumerate(tools):
        pointer = tool.name.replace("~", "~0").replace("/", "~1")
        properties = {tool.name: tool.schema(f"{base}/anyOf/{index}/properties/{pointer}")}
        closed = {"required": [tool.name], "additionalProperties": False}
        calls.append({"type": "object", "properties": properties, **closed})
    call: Any = {"anyOf": calls}
    return text.json({"type": "array", "minItems": 1, "items": call} if many else call)
