"""Grammars of single arguments: from their schemas, as text, or in a client's own syntax."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from greenroom.engine.grammar import schema_keywords
from greenroom.engine.grammar.composition import subschemas
from greenroom.engine.grammar.grammar_builder import literal, without_anchors
from greenroom.engine.grammar.limits import MAX_DEPTH
from greenroom.engine.grammar.patterns import JsonPath
from greenroom.engine.grammar.schema_check import rebased
from greenroom.engine.grammar.schema_keywords import FORMAT_PATTERNS
from greenroom.engine.parsers.json_values import value_at
from greenroom.schemas.messages.messages import ARGUMENT

if TYPE_CHECKING:
    from greenroom.engine.grammar.constrained_tools import ConstrainedTool
    from greenroom.engine.grammar.grammar_builder import GrammarBuilder


NO_STRING = ("object", "array", "number", "boolean", "null")
_STRING_KEYWORDS = {"type", "minLength", "maxLength", "pattern", "format", "allOf", "enum", "const"}
_OBJECT_KEYWORDS = {"type", "properties", "required", "additionalProperties", "$defs", "definitions"}
_CHOICES = ("anyOf", "oneOf")
_DEFINITIONS = ("#/$defs/", "#/definitions/")
_MAX_BRANCHES = 64


class CannotBeWritten(Exception):
    """The format cannot enforce an argument's schema; the message names the offending part."""


@attrs.frozen
class ArgumentSchema:
    """An argument's schema, split by kind of value. `strings`: alternative schemas of its string values,
    without `type`.
    """

    strings: tuple[Mapping[str, Any], ...]
    others: tuple[Any, ...]

    @property
    def mixes(self) -> bool:
        """True if the argument admits both strings and other values."""
        return bool(self.strings) and bool(self.others)


def argument_schema(value: Any, root: Any) -> ArgumentSchema:
    """Return an argument's schema, split into strings and other values. Raises CannotBeWritten: the schema
    does not separate strings from other values.
    """
    strings, others = list[Mapping[str, Any]](), list[Any]()
    waiting = [value]
    for _ in range(_MAX_BRANCHES):
        if not waiting:
            return ArgumentSchema(tuple(strings), tuple(others))
        schema = resolved(waiting.pop(0), root)
        is_object = isinstance(schema, Mapping)
        branches = next((schema[name] for name in _CHOICES if is_object and name in schema), None)
        if branches is None:
            _add_plain(schema, strings, others)
        elif len(schema) == 1:
            waiting[:0] = branches
        else:
            raise CannotBeWritten("alternatives beside other keywords")
    raise CannotBeWritten("more alternatives than can be told apart")


def _add_plain(schema: Any, strings: list[Mapping[str, Any]], others: list[Any]) -> None:
    if not isinstance(schema, Mapping):
        schema = {} if schema else {"enum": []}
    types, values = _types(schema), _listed(schema)
    if values is not None:
        fitting = [item for item in values if not schema_keywords.TYPES_OF[type(item)].isdisjoint(types)]
        texts = [item for item in fitting if isinstance(item, str)]
        rest = [item for item in fitting if not isinstance(item, str)]
        unlisted = {key: item for key, item in schema.items() if key not in ("enum", "const", "type")}
        if texts:
            strings.append({**unlisted, "enum": texts})
        if rest:
            others.append({**schema, "enum": rest} if "enum" in schema else schema)
        return
    if "string" in types:
        strings.append({key: item for key, item in schema.items() if key != "type"})
    if named := [name for name in types if name != "string"]:
        others.append({**schema, "type": named[0] if len(named) == 1 else named})


def check_string(schema: Mapping[str, Any]) -> None:
    """Check that a string schema can be enforced on unquoted strings. Raises CannotBeWritten: the schema has
    other keywords.
    """
    other = set(schema) - _STRING_KEYWORDS
    parts = schema.get("allOf", ())
    if other or any(set(part) != {"pattern"} for part in parts):
        raise CannotBeWritten("the keywords")


def check_object(schema: Mapping[str, Any]) -> None:
    """Refuse a tool's schema that a call format which writes arguments one by one cannot enforce.

    Raises:
        CannotBeWritten: The schema has a keyword beside `properties` and `required`, or requires an argument
            that `properties` does not describe.
    """
    if other := set(schema) - _OBJECT_KEYWORDS:
        raise CannotBeWritten(f"the keywords {sorted(other)}")
    if missing := set(schema.get("required", ())) - set(schema.get("properties", {})):
        raise CannotBeWritten(f"required arguments without a schema: {sorted(missing)}")


def loosened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a loose tool's schema without what formats that write arguments one by one cannot enforce.
    Raises CannotBeWritten: the schema names no arguments.
    """
    kept = {key: value for key, value in schema.items() if key in _OBJECT_KEYWORDS}
    kept["properties"] = {**schema.get("properties", {})}
    for name in schema.get("required", ()):
        kept["properties"].setdefault(name, True)
    if not kept["properties"] and schema.get("additionalProperties", True) is not False:
        raise CannotBeWritten("a schema without properties")
    return kept


def patterns(schema: Mapping[str, Any]) -> list[str]:
    own = [schema["pattern"]] if "pattern" in schema else []
    return own + [part["pattern"] for part in schema.get("allOf", ())]


def resolved(value: Any, root: Any) -> Any:
    """Return the target of a chain of references. Raises CannotBeWritten: A reference has other keywords
    beside it.
    """
    schema = _followed(value, root)
    if isinstance(schema, Mapping) and "$ref" in schema and len(schema) > 1:
        raise CannotBeWritten("a reference beside other keywords")
    return schema


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return a subschema as a standalone schema, with what its references lead to in the root schema."""
    schema = _followed(schema, root)
    if not any("$ref" in part for part, _ in subschemas(schema, JsonPath(""))):
        return schema
    standing = {**schema, **{name: root[name] for name in ("$defs", "definitions") if name in root}}
    references = (part.get("$ref", _DEFINITIONS[0]) for part, _ in subschemas(standing, JsonPath("")))
    if all(reference.startswith(_DEFINITIONS) for reference in references):
        return standing
    base = "#/$defs/tool"
    return {**rebased(schema, base), "$defs": {"tool": rebased(root, base)}}


def _followed(value: Any, root: Any) -> Any:
    for _ in range(MAX_DEPTH):
        if not (isinstance(value, Mapping) and set(value) == {"$ref"} and value["$ref"].startswith("#")):
            break
        target = value_at(root, value["$ref"])
        if target is None:
            break
        value = target
    return value


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    return list(schema["enum"]) if "enum" in schema else [schema["const"]] if "const" in schema else None


def _types(schema: Mapping[str, Any]) -> list[str]:
    named = schema.get("type")
    if named is None:
        return ["string", *NO_STRING]
    return [named] if isinstance(named, str) else [name for name in schema_keywords.TYPES if name in named]


ANY_TEXT = "/(?s:.*)/"
_TRIMMED = r"/(?s:[^ \n\r\t\f\v](?:.*[^ \n\r\t\f\v])?)?/"
"""Text without white space at its ends.

Parsers strip it, which would change a value's length or its apparent type.
"""

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*"
_WORD = "[A-Za-z0-9_+-]+"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_HEX = "[0-9a-fA-F]{1,4}"
_DAYS = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_CLOCK = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_URI_TEXT = r"(?:[A-Za-z0-9._~:\/?#@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"
_FORMATS = {
    "uuid": "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": "|".join(
        [
            f"(?:{_HEX}:){{7}}{_HEX}",
            f"(?:{_HEX}:){{1,7}}:",
            *(f"(?:{_HEX}:){{1,{7 - behind}}}(?::{_HEX}){{1,{behind}}}" for behind in range(1, 7)),
            f"::(?:{_HEX}:){{0,6}}{_HEX}",
            "::",
        ]
    ),
    "hostname": _HOST,
    "email": rf"{_WORD}(?:\.{_WORD})*@{_HOST}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.-]*:{_URI_TEXT}+",
    "duration": f"P(?:{_DAYS}(?:{_CLOCK})?|{_CLOCK}|[0-9]+W)",
}
"""Patterns of string formats (RFC 4122, 4291, 1123, 5321, 3986, ISO 8601).

Dates and times arrive as patterns in the checked schema.
"""

_LOOKS_LIKE = {
    "null": "[nN][uU][lL][lL]|[nN][oO][nN][eE]",
    "boolean": "[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]",
    "number": r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?",
}
_BEGINS_LIKE = {"array": r"\[", "object": r"\{", "string": '"'}


def string_content(schema: Mapping[str, Any], tags: Collection[str], trimmed: bool = True) -> str:
    """Return the terminal expression of a string's text. `tags`: tags that the text must not contain, because
    a parser would read them as markup; `trimmed`: True if parsers strip white space around the text.
    """
    shortest, longest = schema.get("minLength", 0), schema.get("maxLength", "")
    searched = patterns(schema)
    # Text in these formats contains neither markup nor spaces, and excluding them is too expensive.
    dense = "format" in schema or not set(searched).isdisjoint(FORMAT_PATTERNS.values())
    parts = [f"/{_searched(pattern)}/" for pattern in searched]
    if "format" in schema:
        parts.append(f"/(?:{_FORMATS[schema['format']]})/")
    if shortest or longest or not parts:
        parts.append(f"/(?s:.{{{shortest},{longest}}})/")
    if trimmed and not dense and (searched or shortest or longest):
        parts.append(_TRIMMED)
    content = " & ".join(parts)
    return f"({content})" if dense else without(content, tags)


def unlike(types: Collection[str], behind: str) -> str:
    """Return the terminal expression of texts that cannot be mistaken for values of other types.

    Nor may a text begin with such a value and the first character of `behind`: behind a value of another
    type, the lexer would otherwise take the end tag for more text.
    """
    kinds = {"number" if name == "integer" else name for name in types}
    alike = [text for name, text in _LOOKS_LIKE.items() if name in kinds]
    begin = [_BEGINS_LIKE[name] for name in ("array", "object") if name in kinds] + [_BEGINS_LIKE["string"]]
    parts = [f"(?:{'|'.join(begin)})(?s:.*)"]
    if alike:
        parts.append(f"(?:{'|'.join(alike)})(?:{_escaped(behind[0])}(?s:.*))?")
    return f"~/{'|'.join(parts)}/ & {_TRIMMED}"


def without(content: str, tags: Collection[str]) -> str:
    return f"({content} & ~/(?s:.*)(?:{'|'.join(map(_escaped, tags))})(?s:.*)/)"


def up_to(text: GrammarBuilder, inside: str, end: str) -> str:
    """Return the rule of a text up to and including its end tag."""
    closing = text.fixed_text(end)
    before, special, behind = closing.partition("<[")
    if special:  # No text looks like a special token, so the string needs no other end.
        return f"{text.terminal(f'{inside} {before}')} {special}{behind}"
    return text.rule(text.terminal(f"{inside} {closing}"), "[lazy]")


def _escaped(text: str) -> str:
    return re.escape(text).replace("/", r"\/").replace("\\\n", r"\n")


def _searched(pattern: str) -> str:
    """Return a search pattern as one that matches the whole text."""
    inner = without_anchors(pattern)
    start = "" if pattern.startswith("^") else "(?s:.*)"
    end = "" if inner != pattern.removeprefix("^") else "(?s:.*)"
    return f"{start}(?:{inner}){end}"


def json_arguments(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    if tool.grammar is None:
        return text.json(tool.schema("#"))
    return f'{literal(f"{{{chr(34)}{ARGUMENT}{chr(34)}: ")} {json_text(text, tool)} "}}"'


def json_text(text: GrammarBuilder, tool: ConstrainedTool) -> str:
    """Return the expression of a tool's text argument as the inside of a JSON string, in quotes. Raises
    ProblemError: 400 if the grammar cannot be rewritten for a JSON string.
    """
    grammar = tool.grammar
    assert grammar is not None
    if not grammar.escaped:
        raise tool.refusal(f"{grammar.obstacle} in the grammar")
    quote = literal('"')
    return f"{quote} {text.part_of_text(grammar.escaped)} {quote}"


def plain_text(text: GrammarBuilder, tool: ConstrainedTool, foreign: str) -> str:
    """Return the expression of a tool's text argument without quotes; empty if it could contain markup.
    `foreign`: characters that the text must not contain.
    """
    grammar = tool.grammar
    assert grammar is not None
    if grammar.characters is None or not grammar.characters.isdisjoint(foreign):
        return ""
    return text.part_of_text(grammar.lark)
