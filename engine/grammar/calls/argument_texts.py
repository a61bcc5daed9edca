"""Grammar terminals of unquoted strings, up to their end tag."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from greenroom.engine.grammar.calls.argument_schemas import patterns
from greenroom.engine.grammar.json_schema.keywords import FORMAT_PATTERNS

if TYPE_CHECKING:
    from greenroom.engine.grammar.lark.grammar_builder import GrammarBuilder

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
    """Return the terminal expression of a string's text.

    Args:
        tags: Tags that the text must not contain, because a parser would read them as markup.
        trimmed: True if parsers strip white space around the text.
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
    """Return the terminal expression of a text without certain tags."""
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
    start = "" if pattern.startswith("^") else "(?s:.*)"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else "(?s:.*)"
    inner = pattern.removeprefix("^")
    return f"{start}(?:{inner[:-1] if not end else inner}){end}"
