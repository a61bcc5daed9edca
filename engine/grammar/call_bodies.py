"""Grammars of calls up to their end: one JSON object, Python's form, and Gemma's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar.call_arguments import (
    CannotBeWritten,
    argument_schema,
    check_object,
    check_string,
    json_arguments,
    json_text,
    loosened,
    plain_text,
    string_content,
    up_to,
    with_definitions,
)
from greenroom.engine.grammar.call_syntax import Body
from greenroom.engine.grammar.grammar_builder import SPACE, literal
from greenroom.schemas.messages.messages import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


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
    `many`: True for an array of one or more calls.
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
    return "(" + " | ".join(written(tool, json_arguments(text, tool)) for tool in tools) + ")"


def tagged_lines(end: str) -> Body:
    """Return the body of consecutive JSON objects, up to an end marker."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, "arguments")
        return f"{SPACE} {call} {f'({SPACE} {call})*' if many else ''} {SPACE} {text.fixed_text(end)}"

    return body


def tagged_array(end: str, key: str = "arguments", name_key: str = "name", numbered: bool = False) -> Body:
    """Return the body of an array of JSON objects, up to an end marker. `numbered`: True if each object
    starts with an id.
    """
    first = {"tool_call_id": {"type": "string", "pattern": "^[0-9]{1,2}$"}} if numbered else _NOTHING

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = json_call(text, tools, key, many, name_key, first)
        array = call if many else f'"[" {SPACE} {call} {SPACE} "]"'
        return f"{SPACE} {array} {SPACE} {text.fixed_text(end)}"

    return body


def json_list(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    if many:
        return f"{SPACE} {json_call(text, tools, 'arguments', many=True)}"
    return f'{SPACE} "[" {json_call(text, tools, "arguments")} "]"'


def open_list(key: str) -> Body:
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


_COMMA = '"," " "?'


def pythonic_list(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    call = _any_call(text, tools)
    more = f"({_COMMA} {call})*" if many else ""
    return f'"[" {call} {more} "]"'


def pythonic_block(end: str) -> Body:
    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        return f"{SPACE} {pythonic_list(text, tools, many)} {SPACE} {text.fixed_text(end)}"

    return body


def pythonic_lines(end: str) -> Body:
    """Return the body of calls on lines of their own, up to an end marker."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = _any_call(text, tools)
        more = rf'("\n" {call})*' if many else ""
        return f"{SPACE} {call} {more} {SPACE} {text.fixed_text(end)}"

    return body


def _any_call(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...]) -> str:
    return text.rule(" | ".join(_call(text, tool) for tool in tools))


def _call(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    opened = text.fixed_text(f"{tool.plain_name}(")
    return f'{opened} {_arguments(text, tool)} ")"'


def _arguments(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    if tool.grammar is not None:
        return f"{text.fixed_text(f'{ARGUMENT}=')} {json_text(text, tool)}"
    if tool.enforced:
        try:
            schema = tool.schema("#") if tool.strict else loosened(tool.schema("#"))
            return named_arguments(text, schema, "=", lambda part: text.json(with_definitions(part, schema)))
        except CannotBeWritten as error:
            if tool.strict:
                raise tool.refusal(str(error)) from error
    return _any_arguments(text)


def _any_arguments(text: GrammarBuilder) -> str:
    key = text.terminal("/[A-Za-z_][A-Za-z0-9_]{0,63}=/")
    argument = text.rule(f"{key} {text.json({})}")
    return f"({argument} ({_COMMA} {argument})*)?"


def named_arguments(
    text: GrammarBuilder,
    schema: Mapping[str, Any],
    sign: str,
    value: Callable[[Any], str],
    comma: str = _COMMA,
) -> str:
    """Return the expression of named arguments in schema order, separated by commas. Raises CannotBeWritten:
    the schema states more than properties, or a name needs quotes.
    """
    check_object(schema)
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    behind, last = "", ""  # Rest of the arguments after a previous argument, and without one.
    for name in reversed(properties):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise CannotBeWritten(f"the argument name '{name}'")
        written = text.rule(f"{text.fixed_text(name + sign)} {value(properties[name])}")
        first, later = f"{written} {behind}", f"{comma} {written} {behind}"
        if name not in required:
            first, later = f"({first} | {last})" if last else f"({first})?", f"({comma} {written})? {behind}"
        behind, last = text.rule(later), text.rule(first)
    return last


_ARRAY_KEYWORDS = {"type", "items", "minItems", "maxItems"}
_MAX_ITEMS = 32  # Limit on the items of a bounded array, each of which takes a rule
_MAX_LEVELS = 8  # Limit on nesting levels in the native form; deeper values are written as JSON


def gemma_calls(quote: str, end: str) -> Body:
    """Return the body of a block of calls. `quote`: marker on both sides of a string; nothing is escaped in
    between.
    """

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        values = _Values(text, quote)
        call = text.rule(" | ".join(map(values.call, tools)))
        return f"{call} {text.fixed_text(end)}"

    return body


class _Values:
    """Builds grammars of values in Gemma's own form, or as JSON where that form cannot enforce the schema.
    `quote`: marker on both sides of a string; nothing is escaped in between.
    """

    def __init__(self, text: GrammarBuilder, quote: str) -> None:
        self._text = text
        self._quote = quote

    def call(self, tool: ConstrainedTool) -> str:
        schema = tool.schema("#")
        head = self._text.fixed_text(f"call:{tool.plain_name}")
        if tool.grammar is not None:
            quote = self._text.fixed_text(self._quote)
            plain = plain_text(self._text, tool, self._quote[0])
            value = f"{quote} {plain} {quote}" if plain else json_text(self._text, tool)
            return f'{head} {literal(f"{{{ARGUMENT}:")} {value} "}}"'
        return f"{head} {self._value(schema, schema, 0)}"

    def _value(self, schema: Any, root: Any, level: int) -> str:
        try:
            return self._native(schema, root, level)
        except CannotBeWritten:
            return self._text.json(with_definitions(schema, root))

    def _native(self, schema: Any, root: Any, level: int) -> str:
        if level > _MAX_LEVELS:
            raise CannotBeWritten("values nested deeper")
        parts = argument_schema(schema, root)
        choices = [self._string(part) for part in parts.strings]
        choices += [self._other(part, root, level) for part in parts.others]
        if not choices:
            raise CannotBeWritten("a schema that nothing satisfies")
        return choices[0] if len(choices) == 1 else self._text.rule(" | ".join(choices))

    def _string(self, schema: Mapping[str, Any]) -> str:
        check_string(schema)
        start = self._text.fixed_text(self._quote)
        if "enum" in schema:
            if set(schema) != {"enum"} or not all(schema["enum"]) or self._quote in "".join(schema["enum"]):
                raise CannotBeWritten("the values")
            return f"{start} ({' | '.join(map(literal, schema['enum']))}) {start}"
        content = string_content(schema, (self._quote,), trimmed=False)
        return f"{start} {up_to(self._text, content, self._quote)}"

    def _other(self, schema: Any, root: Any, level: int) -> str:
        keywords = set(schema) if isinstance(schema, Mapping) else set()
        if keywords and schema.get("type") == "object" and "properties" in schema:
            return self._object(schema, root, level)
        if keywords and schema.get("type") == "array" and "items" in schema and keywords <= _ARRAY_KEYWORDS:
            return self._array(schema, root, level)
        return self._text.json(with_definitions(schema, root))

    def _object(self, schema: Mapping[str, Any], root: Any, level: int) -> str:
        if schema.get("additionalProperties", True) not in (True, False):
            raise CannotBeWritten("keys of any name")
        closed = {key: part for key, part in schema.items() if key not in ("$defs", "definitions")}
        members = named_arguments(
            self._text, closed, ":", lambda part: self._value(part, root, level + 1), comma='","'
        )
        return f'"{{" {members} "}}"'

    def _array(self, schema: Mapping[str, Any], root: Any, level: int) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if max(least, most or 0) > _MAX_ITEMS:
            raise CannotBeWritten("so many items")
        item = self._text.rule(self._value(schema["items"], root, level + 1))
        if most == 0:
            return '"[" "]"'
        items = item
        if most is None or most > 1:
            items += f' ("," {item}){{{max(0, least - 1)},{"" if most is None else most - 1}}}'
        return f'"[" {items if least else f"({items})?"} "]"'
