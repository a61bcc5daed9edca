"""Grammars of Gemma 4's and FunctionGemma's calls: `call:f{key:value,…}`, with special quotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar.calls.argument_schemas import (
    CannotBeWritten,
    argument_schema,
    check_string,
    with_definitions,
)
from greenroom.engine.grammar.calls.argument_texts import string_content, up_to
from greenroom.engine.grammar.calls.call_syntax import Body
from greenroom.engine.grammar.calls.pythonic_calls import named_arguments
from greenroom.engine.grammar.calls.text_arguments import json_text, plain_text
from greenroom.engine.grammar.lark.lark_text import literal
from greenroom.schemas.messages.text_tools import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder

_ARRAY_KEYWORDS = {"type", "items", "minItems", "maxItems"}
_MAX_ITEMS = 32
"""Limit on the items of a bounded array, each of which takes a rule."""
_MAX_LEVELS = 8
"""Limit on nesting levels in the native form; deeper values are written as JSON."""


def gemma_calls(quote: str, end: str) -> Body:
    """Return the body of a block of calls.

    Args:
        quote: Marker on both sides of a string; nothing is escaped in between.
        end: Marker that closes the block.
    """

    def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
        values = _Values(text, quote)
        call = text.rule(" | ".join(map(values.call, tools)))
        return f"{call} {text.fixed_text(end)}"

    return body


class _Values:
    """Builds grammars of values in Gemma's own form, or as JSON where that form cannot enforce the schema.

    Args:
        text: Builder of the grammar.
        quote: Marker on both sides of a string; nothing is escaped in between.
    """

    def __init__(self, text: GrammarBuilder, quote: str) -> None:
        self._text = text
        self._quote = quote

    def call(self, tool: ConstrainedTool) -> str:
        """Return the expression of a call to a tool."""
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
