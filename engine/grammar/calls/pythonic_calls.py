"""Grammars of calls written as Python with JSON values: `get_weather(city="Paris", days=2)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar.calls.argument_schemas import (
    CannotBeWritten,
    check_object,
    loosened,
    with_definitions,
)
from greenroom.engine.grammar.calls.call_syntax import Body
from greenroom.engine.grammar.calls.text_arguments import json_text
from greenroom.engine.grammar.lark.lark_text import SPACE
from greenroom.schemas.messages.text_tools import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder

_COMMA = '"," " "?'


def pythonic_list(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
    """Return the expression of a list of calls."""
    call = _any_call(text, tools)
    more = f"({_COMMA} {call})*" if many else ""
    return f'"[" {call} {more} "]"'


def pythonic_block(end: str) -> Body:
    """Return the body of a list of calls, up to an end marker."""

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
            schema = tool.schema("#")
            return named_arguments(text, schema if tool.strict else loosened(schema), "=", text.json)
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
    """Return the expression of named arguments in schema order, separated by commas.

    Args:
        schema: Schema of the arguments.
        sign: Text between a name and its value.
        value: Function that returns the expression of a schema's values.
        comma: Expression of the separator.

    Raises:
        CannotBeWritten: The schema states more than properties, or a name needs quotes.
    """
    check_object(schema)
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    behind, last = "", ""  # Rest of the arguments after a previous argument, and without one.
    for name in reversed(properties):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise CannotBeWritten(f"the argument name '{name}'")
        part = value(with_definitions(properties[name], schema))
        written = text.rule(f"{text.fixed_text(name + sign)} {part}")
        first, later = f"{written} {behind}", f"{comma} {written} {behind}"
        if name not in required:
            first, later = f"({first} | {last})" if last else f"({first})?", f"({comma} {written})? {behind}"
        behind, last = text.rule(later), text.rule(first)
    return last
