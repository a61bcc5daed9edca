"""Calls whose arguments stand one by one between tags, strings without quotes (GLM 4.5, Qwen 3 Coder)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from greenroom.engine.grammar import keywords
from greenroom.engine.grammar.call_arguments import OfferedTool
from greenroom.engine.grammar.grammar_text import MARGIN, GrammarText, literal
from greenroom.schemas.problems import invalid

_STRING_KEYWORDS = {"type", "minLength", "maxLength", "pattern", "allOf", "enum", "const"}
_OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}


@attrs.frozen
class RawArguments:
    """The tags of one format. `{}` stands for a name.

    Args:
        head: What stands before the first argument.
        before: What stands before a value.
        end: What closes a value.
        tail: What follows the last argument.
        space: White space on both sides of a value.
        null: The word "null" is read as null even where a string is expected.
    """

    head: str
    before: str
    end: str
    tail: str
    space: str
    null: bool

    def calls(self, text: GrammarText, tools: tuple[OfferedTool, ...]) -> str:
        """A call to any of the tools, after the marker and up to its end."""
        calls = " | ".join(text.rule(self._call(text, tool)) for tool in tools)
        end = text.marker("</tool_call>")
        return f"{MARGIN} ({calls}) {MARGIN} {end}"

    def _call(self, text: GrammarText, tool: OfferedTool) -> str:
        schema: dict[str, Any] = tool.schema("#") if tool.exact else {}
        head, tail = literal(self.head.format(tool.plain_name)), self.tail and literal(self.tail)
        if not tool.exact or not set(schema) <= _OBJECT_KEYWORDS:
            if tool.exact:
                return self._refuse(tool, f"the keywords {sorted(set(schema) - _OBJECT_KEYWORDS)}")
            return f"{head} ({MARGIN} {self._any_argument(text)})* {MARGIN} {tail}"
        required = set(schema.get("required", ()))
        properties = schema.get("properties", {})
        if required - properties.keys():
            self._refuse(tool, f"required arguments without a schema: {sorted(required - properties.keys())}")
        parts = [head]
        for name, value in properties.items():
            written = text.rule(f"{MARGIN} {self._argument(text, tool, name, value, schema)}")
            parts.append(written if name in required else f"{written}?")
        return " ".join([*parts, MARGIN, tail])

    def _any_argument(self, text: GrammarText) -> str:
        key = text.terminal(r"/[A-Za-z_][A-Za-z0-9_.-]{0,63}/")
        before, _, after = self.before.partition("{}")
        return f"{literal(before)} {key} {literal(after + self.space)} {self._string(text, '/(?s:.*)/')}"

    def _argument(self, text: GrammarText, tool: OfferedTool, name: str, value: Any, root: Any) -> str:
        start = literal(self.before.format(name) + self.space)
        if not re.fullmatch(r"[\w.-]+", name):
            self._refuse(tool, f"the argument name '{name}'")
        if not isinstance(value, Mapping) or "string" not in self._types(value):
            return f"{start} {self._json(text, value, root)}"
        if set(value) - _STRING_KEYWORDS or value.get("type", "string") != "string":
            self._refuse(tool, f"the schema of '{name}', which mixes strings with something else,")
        if "enum" in value or "const" in value:
            return f"{start} {self._choice(text, tool, name, value)}"
        return f"{start} {self._string(text, self._content(value))}"

    def _types(self, value: Mapping[str, Any]) -> set[str]:
        """The types that a value may have; every type if it cannot be told."""
        named = value.get("type")
        if named is not None:
            return {named} if isinstance(named, str) else set(named)
        values = value.get("enum", [value["const"]] if "const" in value else None)
        if values is not None:
            return {"string"} if any(isinstance(item, str) for item in values) else set()
        return set(keywords.TYPES)

    def _json(self, text: GrammarText, value: Any, root: Any) -> str:
        if isinstance(value, Mapping):
            value = {**value, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
        return f"{text.json(value)} {self._closing(text)}"

    def _closing(self, text: GrammarText) -> str:
        end = text.marker(self.end)
        return f"{literal(self.space)} {end}" if self.space else end

    def _choice(self, text: GrammarText, tool: OfferedTool, name: str, value: Mapping[str, Any]) -> str:
        wanted = value.get("enum", [value.get("const")])
        texts = [item for item in wanted if isinstance(item, str) and item and item == item.strip()]
        kept = [item for item in texts if not (self.null and item.lower() == "null")]
        if len(kept) != len(wanted) or set(value) - {"type", "enum", "const"}:
            self._refuse(tool, f"the values of '{name}'")
        return "(" + " | ".join(literal(item) for item in kept) + f") {self._closing(text)}"

    def _content(self, value: Mapping[str, Any]) -> str:
        """The terminal expression of a string's text."""
        least, most = value.get("minLength", 0), value.get("maxLength", "")
        parts = [f"/(?s:.{{{least},{most}}})/"]
        patterns = [value["pattern"]] if "pattern" in value else []
        patterns += [part["pattern"] for part in value.get("allOf", ()) if set(part) == {"pattern"}]
        parts += [f"/{_searched(pattern)}/" for pattern in patterns]
        if len(parts) > 1 or least or most:
            # The parser drops white space around a value, which would change its length.
            parts.append(r"~/(?s:[ \n\r\t\f\v].*|.*[ \n\r\t\f\v])/")
        return " & ".join(parts)

    def _string(self, text: GrammarText, content: str) -> str:
        """A string's text, up to the tag that closes it."""
        special = text.tokenizer.special(self.end)
        inside = f"({content} & ~/(?s:.*){re.escape(self.end).replace('/', chr(92) + '/')}(?s:.*)/"
        inside += " & ~/(?i:null)/)" if self.null else ")"
        if special is not None and not self.space:
            return f"{text.terminal(inside)} <[{special}]>"
        closing = literal(self.space + self.end)
        return text.rule(text.terminal(f"{inside} {closing}"), "[lazy]")

    def _refuse(self, tool: OfferedTool, what: str) -> str:
        where = f"the strict tool '{tool.name}'"
        detail = f"In this model's format of calls, {what} of {where} cannot be honoured"
        raise invalid(detail, tool.param, "unsupported_schema")


def _searched(pattern: str) -> str:
    """A pattern that is searched for, as one that matches the whole text."""
    start = "" if pattern.startswith("^") else "(?s:.*)"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.*)"
    inner = pattern.removeprefix("^")
    return f"{start}(?:{inner[:-1] if not end else inner}){end}"


glm_arguments = RawArguments(
    head="{}\n",
    before="<arg_key>{}</arg_key>\n<arg_value>",
    end="</arg_value>",
    tail="",
    space="",
    null=False,
)
qwen_arguments = RawArguments(
    head="<function={}>",
    before="<parameter={}>",
    end="</parameter>",
    tail="</function>",
    space="\n",
    null=True,
)
