"""Calls written as Python: `get_weather(city="Paris", days=2)`, with values as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
from greenroom.engine.grammar.calls.json_call_bodies import Body
from greenroom.engine.grammar.lark.grammar_builder import SPACE, GrammarBuilder
from greenroom.schemas.problems import invalid

_OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}
_COMMA = '"," " "?'


def pythonic_list(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    """Return a list of calls."""
    call = _any_call(text, tools)
    more = f"({_COMMA} {call})*" if many else ""
    return f'"[" {call} {more} "]"'


def pythonic_block(end: str) -> Body:
    """Return a list of calls, up to an end marker."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        return f"{SPACE} {pythonic_list(text, tools, many)} {SPACE} {text.fixed_text(end)}"

    return body


def pythonic_lines(end: str) -> Body:
    """Return what writes calls one per line, up to an end marker."""

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        call = _any_call(text, tools)
        more = rf'("\n" {call})*' if many else ""
        return f"{SPACE} {call} {more} {SPACE} {text.fixed_text(end)}"

    return body


def _any_call(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...]) -> str:
    return text.rule(" | ".join(_call(text, tool) for tool in tools))


def _call(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.:/-]*", tool.plain_name):
        _refuse(tool, f"the name '{tool.name}'")
    opened = text.fixed_text(f"{tool.plain_name}(")
    arguments = _named_arguments(text, tool) if tool.enforced else _any_arguments(text)
    return f'{opened} {arguments} ")"'


def _any_arguments(text: GrammarBuilder) -> str:
    key = text.terminal("/[A-Za-z_][A-Za-z0-9_]{0,63}=/")
    argument = text.rule(f"{key} {text.json({})}")
    return f"({argument} ({_COMMA} {argument})*)?"


def _named_arguments(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the arguments in the order of the schema, with commas between those that are there."""
    schema: Mapping[str, Any] = tool.schema("#")
    if not set(schema) <= _OBJECT_KEYWORDS:
        _refuse(tool, f"the keywords {sorted(set(schema) - _OBJECT_KEYWORDS)}")
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    if required - properties.keys():
        _refuse(tool, f"required arguments without a schema: {sorted(required - properties.keys())}")
    behind, last = "", ""  # What follows when an argument stands before, and when none does.
    for name in reversed(properties):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            _refuse(tool, f"the argument name '{name}'")
        written = text.rule(f"{text.fixed_text(name + '=')} {_value(text, properties[name], schema)}")
        first, later = f"{written} {behind}", f"{_COMMA} {written} {behind}"
        if name not in required:
            first, later = f"({first} | {last})" if last else f"({first})?", f"({_COMMA} {written})? {behind}"
        behind, last = text.rule(later), text.rule(first)
    return last


def _value(text: GrammarBuilder, schema: Any, root: Mapping[str, Any]) -> str:
    if isinstance(schema, Mapping):
        schema = {**schema, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
    return text.json(schema)


def _refuse(tool: ConstrainedTool, what: str) -> None:
    where = f"the strict tool '{tool.name}'" if tool.enforced else f"the tool '{tool.name}'"
    detail = f"In this model's format of calls, {what} of {where} cannot be honoured"
    raise invalid(detail, tool.param, "unsupported_schema")
