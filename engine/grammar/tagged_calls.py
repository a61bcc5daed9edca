"""Grammars of calls with tagged arguments and unquoted strings (GLM 4.5, Qwen 3 Coder)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.grammar.call_arguments import (
    ANY_TEXT,
    NO_STRING,
    CannotBeWritten,
    argument_schema,
    check_object,
    check_string,
    json_arguments,
    loosened,
    patterns,
    plain_text,
    string_content,
    unlike,
    up_to,
    with_definitions,
    without,
)
from greenroom.engine.grammar.call_syntax import Body, call_head
from greenroom.engine.grammar.grammar_builder import SPACE, literal
from greenroom.engine.parsers.offered_tools import schema_types
from greenroom.schemas.messages.messages import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


@attrs.frozen
class TaggedArguments:
    """The tags of one format.

    `{}` is replaced by a name.

    Args:
        before: Text before a value; `{string}` becomes `true` for a string, else `false`; `{type}` becomes
            the name of the value's type.
        close: Marker that ends a call's block.
        foreign: Texts besides `end` that no string may contain, because a parser would read them as markup.
        around_json: Texts before and after a JSON object that replaces the arguments.
        trimmed: White space characters that parsers strip from a value's ends.
    """

    head: str
    before: str
    end: str
    tail: str
    space: str
    close: str = "</tool_call>"
    foreign: tuple[str, ...] = ()
    around_json: tuple[str, str] = ("", "")
    trimmed: str = ""

    def block(self) -> Body:
        """Return the body of a call to any of the tools, from behind the marker to the block's end."""

        def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
            calls = " | ".join(text.rule(self._call(text, tool, self.head)) for tool in tools)
            return f"{SPACE} ({calls}) {SPACE} {text.fixed_text(self.close)}"

        return body

    def alone(self, marker: str = "") -> Body:
        """Return the body of a call from its head to its tail. `marker`: part of the head that is the marker,
        and stands before the body.
        """
        head = self.head.removeprefix(marker)

        def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
            return text.rule(" | ".join(text.rule(self._call(text, tool, head)) for tool in tools))

        return body

    def section(self, end: str) -> Body:
        """Return the body of a section of calls, up to the section's end marker."""
        one = self.alone()

        def body(text: GrammarBuilder, tools: tuple[ConstrainedTool, ...], many: bool) -> str:
            call = one(text, tools, many)
            calls = f"{call} ({SPACE} {call})*" if many else call
            return f"{SPACE} {calls} {SPACE} {text.fixed_text(end)}"

        return body

    def _call(self, text: GrammarBuilder, tool: ConstrainedTool, start: str) -> str:
        head = call_head(text, start, tool.plain_name)
        tail = self.tail and text.fixed_text(self.tail)
        if tool.grammar is not None:
            return " ".join([head, self._text_argument(text, tool), SPACE, tail])
        try:
            return " ".join([head, *self._arguments(text, tool), SPACE, tail])
        except CannotBeWritten as error:
            if tool.strict:
                raise tool.refusal(str(error)) from error
        return f"{head} ({SPACE} {self._any_argument(text)})* {SPACE} {tail}"

    def _text_argument(self, text: GrammarBuilder, tool: ConstrainedTool) -> str:
        plain = plain_text(text, tool, self.end[0] + self.trimmed)
        if not plain:
            before, behind = map(text.fixed_text, self.around_json)
            return f"{before} {json_arguments(text, tool)} {behind}"
        opened = self._typed(self.before.replace("{}", ARGUMENT), True) + self.space
        return f"{text.fixed_text(opened)} {plain} {self._closing(text)}"

    def _arguments(self, text: GrammarBuilder, tool: ConstrainedTool) -> list[str]:
        """Return the expressions of the arguments in schema order. Raises CannotBeWritten: the format cannot
        enforce their schema.
        """
        if not tool.enforced:
            return [f"({SPACE} {self._any_argument(text)})*"]
        schema: dict[str, Any] = tool.schema("#")
        schema = schema if tool.strict else loosened(schema)
        check_object(schema)
        required = set(schema.get("required", ()))
        parts = []
        for name, value in schema.get("properties", {}).items():
            try:
                argument = self._argument(text, tool, name, value, schema)
            except CannotBeWritten:
                if tool.strict:
                    raise
                argument = self._argument(text, tool, name, True, schema)
            written = text.rule(f"{SPACE} {argument}")
            parts.append(written if name in required else f"{written}?")
        return parts

    def _any_argument(self, text: GrammarBuilder) -> str:
        key = text.terminal(r"/[A-Za-z_][A-Za-z0-9_.-]{0,63}/")
        before, _, after = self.before.partition("{}")
        value = up_to(text, without(ANY_TEXT, (self.end, *self.foreign)), self.space + self.end)
        written = f"{text.fixed_text(self._typed(after, True) + self.space)} {value}"
        if self._typed(after, True) != after:
            json = text.json({"type": [*NO_STRING]})
            other = f"{text.fixed_text(self._typed(after, False))} {json} {self._closing(text)}"
            written = f"({written} | {other})"
        return f"{text.fixed_text(before)} {key} {written}"

    def _typed(self, before: str, string: bool, kind: str = "object") -> str:
        return before.replace("{string}", "true" if string else "false").replace(
            "{type}", "string" if string else kind
        )

    def _argument(self, text: GrammarBuilder, tool: ConstrainedTool, name: str, value: Any, root: Any) -> str:
        if not re.fullmatch(r"[\w.-]+", name):
            raise CannotBeWritten(f"the argument name '{name}'")
        before = self.before.replace("{}", name) + self.space
        try:
            schema = argument_schema(value, root)
            unlike_others = self._unlike_others(value, root) if schema.mixes else ""
            choices = [
                f"{text.fixed_text(self._typed(before, True))} {self._text(text, tool, part, unlike_others)}"
                for part in schema.strings
            ]
        except CannotBeWritten as error:
            raise CannotBeWritten(f"{error} of '{name}'") from error
        for part in schema.others:
            start = text.fixed_text(self._typed(before, False, _kind(part)))
            choices.append(f"{start} {text.json(with_definitions(part, root))} {self._closing(text)}")
        if not choices:
            raise CannotBeWritten(f"the schema of '{name}', which nothing satisfies,")
        return choices[0] if len(choices) == 1 else text.rule(" | ".join(choices))

    def _unlike_others(self, value: Any, root: Any) -> str:
        """Return the terminal expression of texts that are surely strings; empty if a tag marks strings."""
        if self.before != self._typed(self.before, True):
            return ""
        return unlike(schema_types(value, root) - {"string"} or NO_STRING, self.space + self.end)

    def _text(
        self, text: GrammarBuilder, tool: ConstrainedTool, schema: Mapping[str, Any], unlike_others: str
    ) -> str:
        """Return the expression of a string, up to its end tag."""
        check_string(schema)
        if "enum" in schema:
            return self._choice(text, schema, bool(unlike_others))
        content = string_content(schema, (self.end, *self.foreign))
        if unlike_others:
            content = f"({content} & {unlike_others})"
        if patterns(schema):
            from greenroom.engine.grammar.grammar_summary import probe_terminals

            probe_terminals("", [content], tool.param)
        return up_to(text, content, self.space + self.end)

    def _choice(self, text: GrammarBuilder, schema: Mapping[str, Any], mixed: bool) -> str:
        texts = [item for item in schema["enum"] if item and item == item.strip()]
        markup = (self.end, *self.foreign)
        if len(texts) != len(schema["enum"]) or set(schema) - {"enum"}:
            raise CannotBeWritten("the values")
        if any(tag in item for item in texts for tag in markup) or (mixed and any(map(_is_json, texts))):
            raise CannotBeWritten("the values")
        return "(" + " | ".join(literal(item) for item in texts) + f") {self._closing(text)}"

    def _closing(self, text: GrammarBuilder) -> str:
        return text.fixed_text(self.space + self.end)


def _kind(schema: Any) -> str:
    """Return the type name of a schema that is not a string's."""
    named = schema.get("type", "object") if isinstance(schema, Mapping) else "object"
    kind = named if isinstance(named, str) else "object"
    return "number" if kind == "integer" else kind


def _is_json(text: str) -> bool:
    """Return whether a parser without a schema would read a string as another type."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text.lower() in ("true", "false", "null", "none") or text[0] in "[{"
    return True
