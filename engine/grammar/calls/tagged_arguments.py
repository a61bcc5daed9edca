"""Calls whose arguments stand one by one between tags, strings without quotes (GLM 4.5, Qwen 3 Coder)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import attrs

from greenroom.engine.grammar.calls.constrained_tools import ConstrainedTool
from greenroom.engine.grammar.cost.limits import MAX_DEPTH
from greenroom.engine.grammar.json_schema import keywords
from greenroom.engine.grammar.lark.grammar_builder import SPACE, GrammarBuilder, literal
from greenroom.engine.grammar.lark.terminal_probe import probe_terminals
from greenroom.schemas.problems import invalid

_STRING_KEYWORDS = {"type", "minLength", "maxLength", "pattern", "allOf", "enum", "const"}
_NO_STRING = {"type": ["object", "array", "number", "boolean", "null"]}
_OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}


@attrs.frozen
class TaggedArguments:
    """The tags of one format. `{}` stands for a name.

    Args:
        head: What stands before the first argument.
        before: What stands before a value; `{string}` stands for `true` or `false`: whether it is a string.
        end: What closes a value.
        tail: What follows the last argument.
        space: White space on both sides of a value.
        close: The marker that ends the block of a call.
        foreign: What no string may hold besides its end, because a reader would take it for markup.
    """

    head: str
    before: str
    end: str
    tail: str
    space: str
    close: str = "</tool_call>"
    foreign: tuple[str, ...] = ()

    def calls(self, text: GrammarBuilder, tools: tuple[ConstrainedTool, ...]) -> str:
        """Return a call to any of the tools, after the marker and up to its end."""
        calls = " | ".join(text.rule(self._call(text, tool, self.head)) for tool in tools)
        end = text.fixed_text(self.close)
        return f"{SPACE} ({calls}) {SPACE} {end}"

    def functions(self, text: GrammarBuilder, tools: tuple[ConstrainedTool, ...]) -> str:
        """Return the same for the marker `<function=`."""
        head = self.head.removeprefix("<function=")
        return "(" + " | ".join(text.rule(self._call(text, tool, head)) for tool in tools) + ")"

    def alternatives(self, text: GrammarBuilder, tools: tuple[ConstrainedTool, ...]) -> str:
        """Return a rule for a call to any of the tools, from its head to its tail."""
        return text.rule(" | ".join(text.rule(self._call(text, tool, self.head)) for tool in tools))

    def _call(self, text: GrammarBuilder, tool: ConstrainedTool, start: str) -> str:
        schema: dict[str, Any] = tool.schema("#") if tool.enforced else {}
        head, tail = text.fixed_text(start.format(tool.plain_name)), self.tail and text.fixed_text(self.tail)
        if not tool.enforced or not set(schema) <= _OBJECT_KEYWORDS:
            if tool.enforced:
                return self._refuse(tool, f"the keywords {sorted(set(schema) - _OBJECT_KEYWORDS)}")
            return f"{head} ({SPACE} {self._any_argument(text)})* {SPACE} {tail}"
        required = set(schema.get("required", ()))
        properties = schema.get("properties", {})
        if required - properties.keys():
            self._refuse(tool, f"required arguments without a schema: {sorted(required - properties.keys())}")
        parts = [head]
        for name, value in properties.items():
            written = text.rule(f"{SPACE} {self._argument(text, tool, name, value, schema)}")
            parts.append(written if name in required else f"{written}?")
        return " ".join([*parts, SPACE, tail])

    def _any_argument(self, text: GrammarBuilder) -> str:
        key = text.terminal(r"/[A-Za-z_][A-Za-z0-9_.-]{0,63}/")
        before, _, after = self.before.partition("{}")
        value = self._string(text, "/(?s:.*)/")
        written = f"{text.fixed_text(self._typed(after, True) + self.space)} {value}"
        if self._typed(after, True) != after:
            other = (
                f"{text.fixed_text(self._typed(after, False))} {text.json(_NO_STRING)} {self._closing(text)}"
            )
            written = f"({written} | {other})"
        return f"{text.fixed_text(before)} {key} {written}"

    def _typed(self, before: str, string: bool) -> str:
        return before.replace("{string}", "true" if string else "false")

    def _argument(self, text: GrammarBuilder, tool: ConstrainedTool, name: str, value: Any, root: Any) -> str:
        before = self.before.replace("{}", name) + self.space
        if not re.fullmatch(r"[\w.-]+", name):
            self._refuse(tool, f"the argument name '{name}'")
        types = _types(value, root)
        start = text.fixed_text(self._typed(before, "string" in types))
        if "string" not in types:
            return f"{start} {self._json(text, value, root)}"
        if types != {"string"}:
            self._refuse(tool, f"the schema of '{name}', which mixes strings with something else,")
        plain = _resolved(value, root)
        if set(plain) - _STRING_KEYWORDS or set(value) - {"$ref"} - _STRING_KEYWORDS:
            self._refuse(tool, f"the keywords of '{name}'")
        if "enum" in plain or "const" in plain:
            return f"{start} {self._choice(text, tool, name, plain)}"
        if "$ref" in value:  # the parser does not see that it is a string, and may take it for a number
            self._refuse(tool, f"the reference of '{name}' to a string")
        content = self._content(value)
        if _patterns(value):
            probe_terminals("", [self._inside(content)], tool.param)
        return f"{start} {self._string(text, content)}"

    def _json(self, text: GrammarBuilder, value: Any, root: Any) -> str:
        if isinstance(value, Mapping):
            value = {**value, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
        return f"{text.json(value)} {self._closing(text)}"

    def _closing(self, text: GrammarBuilder) -> str:
        end = text.fixed_text(self.end)
        return f"{text.fixed_text(self.space)} {end}" if self.space else end

    def _choice(
        self, text: GrammarBuilder, tool: ConstrainedTool, name: str, value: Mapping[str, Any]
    ) -> str:
        options = value.get("enum", [value.get("const")])
        texts = [item for item in options if isinstance(item, str) and item and item == item.strip()]
        if len(texts) != len(options) or set(value) - {"type", "enum", "const"} or any(map(_is_json, texts)):
            self._refuse(tool, f"the values of '{name}'")
        return "(" + " | ".join(literal(item) for item in texts) + f") {self._closing(text)}"

    def _content(self, value: Mapping[str, Any]) -> str:
        """Return the terminal expression of a string's text."""
        shortest, longest = value.get("minLength", 0), value.get("maxLength", "")
        parts = [f"/(?s:.{{{shortest},{longest}}})/"]
        parts += [f"/{_searched(pattern)}/" for pattern in _patterns(value)]
        if len(parts) > 1 or shortest or longest:
            # The parser drops white space around a value, which would change its length.
            parts.append(r"~/(?s:[ \n\r\t\f\v].*|.*[ \n\r\t\f\v])/")
        return " & ".join(parts)

    def _string(self, text: GrammarBuilder, content: str) -> str:
        """Return a string's text, up to the tag that closes it."""
        inside = self._inside(content)
        closing = text.fixed_text(self.space + self.end)
        before, special, behind = closing.partition("<[")
        if special:  # No text looks like a special token, so that the string needs no other end.
            return f"{text.terminal(f'{inside} {before}')} {special}{behind}"
        return text.rule(text.terminal(f"{inside} {closing}"), "[lazy]")

    def _inside(self, content: str) -> str:
        markup = "|".join(re.escape(tag).replace("/", r"\/") for tag in (self.end, *self.foreign))
        return f"({content} & ~/(?s:.*)(?:{markup})(?s:.*)/)"

    def _refuse(self, tool: ConstrainedTool, what: str) -> str:
        where = f"the strict tool '{tool.name}'"
        detail = f"In this model's format of calls, {what} of {where} cannot be honoured"
        raise invalid(detail, tool.param, "unsupported_schema")


def _patterns(value: Mapping[str, Any]) -> list[str]:
    own = [value["pattern"]] if "pattern" in value else []
    return own + [part["pattern"] for part in value.get("allOf", ()) if set(part) == {"pattern"}]


def _resolved(value: Any, root: Any) -> Any:
    """Return the schema that a chain of references leads to."""
    for _ in range(MAX_DEPTH):
        if not isinstance(value, Mapping) or not str(value.get("$ref", "")).startswith("#/"):
            return value
        target = root
        for part in unquote(value["$ref"][2:]).split("/"):
            target = target[part.replace("~1", "/").replace("~0", "~")]
        value = target
    return value


def _types(value: Any, root: Any) -> set[str]:
    """Return the types that a value may have; every type if it cannot be told."""
    types: set[str] = set()
    waiting, seen = [value], set[int]()
    while waiting:
        schema = _resolved(waiting.pop(), root)
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        branches = _branches(schema)
        waiting += branches
        types |= set() if branches else _named_types(schema)
    return types


def _branches(schema: Any) -> list[Any]:
    """Return the branches on which alone the type depends."""
    if not isinstance(schema, Mapping) or {"type", "enum", "const"} & schema.keys():
        return []
    return list(schema.get("anyOf") or schema.get("oneOf") or ())


def _named_types(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set(keywords.TYPES)
    named = schema.get("type")
    if named is not None:
        return {named} if isinstance(named, str) else set(named)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return {"string" if isinstance(item, str) else "object" for item in values}
    return set(keywords.TYPES)


def _is_json(text: str) -> bool:
    """Return whether a parser that does not know that this is a string would take it for something else."""
    try:
        json.loads(text)
    except ValueError:
        return text in ("True", "False", "None") or text[0] in "[{"
    return True


def _searched(pattern: str) -> str:
    """Return a pattern that is searched for, as one that matches the whole text."""
    start = "" if pattern.startswith("^") else "(?s:.*)"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.*)"
    inner = pattern.removeprefix("^")
    return f"{start}(?:{inner[:-1] if not end else inner}){end}"


glm_arguments = TaggedArguments(
    head="{}\n",
    before="<arg_key>{}</arg_key>\n<arg_value>",
    end="</arg_value>",
    tail="",
    space="",
    foreign=("<arg_key>", "<arg_value>"),
)
qwen_arguments = TaggedArguments(
    head="<function={}>",
    before="<parameter={}>",
    end="</parameter>",
    tail="</function>",
    space="\n",
)
seed_arguments = TaggedArguments(
    head="<function={}>",
    before="<parameter={}>",
    end="</parameter>",
    tail="</function>",
    space="",
    close="</seed:tool_call>",
)
