"""Parsing of Python literals and of calls in Python's syntax, without evaluation."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from greenroom.engine.parsers.json_values import argument_pairs
from greenroom.engine.parsers.parser import Malformed, Unclosed

_SPACE = re.compile(r"(?:[ \t\r\n]|\\\n)*")
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]++|(?:\d[\d_]*+\.?\d*+|\.\d++)(?:[eE][-+]?\d++)?)(?![\w.])")
_NAMES = {**{"True": True, "False": False, "None": None}, **{"true": True, "false": False, "null": None}}
_NAME = re.compile(r"(?:True|False|None|true|false|null)(?!\w)")
_STRING_START = re.compile(r"""([rR]?)(\"""|'''|"|')""")
STRING_PARTS = {
    quote: re.compile(rf"(?:[^\\{quote[0]}]++|\\.|(?!{quote}){quote[0]})*+", re.DOTALL)
    for quote in ('"', "'", '"""', "'''")
}
"""Patterns of the inside of a string, by its quotes."""
_ESCAPE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|[0-3]?[0-7]{1,2}|[\n'\"\\abfnrtv])"
)
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_MAX_DEPTH = 100  # Limit on nesting levels, each of which takes a recursive call
_MAX_DIGITS = 4_000  # Limit on an integer's digits: Python reads at most 4,300, in quadratic time


def skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


def expect(text: str, position: int, character: str) -> int:
    """Return the position behind a required character and the white space around it. Raises Unclosed: the
    text ends before the character. Raises Malformed: other text comes next.
    """
    position = skip_space(text, position)
    if not text.startswith(character, position):
        raise (Unclosed if position >= len(text) else Malformed)(f"{character} expected")
    return skip_space(text, position + len(character))


def read_literal(text: str, position: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value at `position` and the position of its end. Raises Unclosed: the text ends inside the
    value. Raises Malformed: there is no literal.
    """
    if depth > _MAX_DEPTH:
        raise Malformed("a value is nested too deep")
    if _STRING_START.match(text, position):
        return _read_strings(text, position)
    if text[position : position + 1] in ("[", "("):
        return _read_list(text, position, depth)
    if text.startswith("{", position):
        return _read_object(text, position, depth)
    if name := _NAME.match(text, position):
        return _NAMES[name.group()], name.end()
    if number := _NUMBER.match(text, position):
        return _number(number.group()), number.end()
    raise (Unclosed if position >= len(text) else Malformed)("a value is no literal")


def _read_strings(text: str, position: int) -> tuple[str, int]:
    parts, end = [], position
    while start := _STRING_START.match(text, position):
        raw, quote = start.groups()
        inside = STRING_PARTS[quote].match(text, start.end())
        if inside is None or not text.startswith(quote, inside.end()):
            raise Unclosed("a string has no end")
        parts.append(inside.group() if raw else unescaped(inside.group()))
        end = inside.end() + len(quote)
        position = skip_space(text, end)
    return "".join(parts), end


def unescaped(text: str) -> str:
    return _ESCAPE.sub(_unescape, text)


def _unescape(escape: re.Match[str]) -> str:
    """Return the character of a known escape; the pattern leaves unknown escapes unchanged."""
    return str(ast.literal_eval(f"'{escape.group()}'"))


def _read_list(text: str, position: int, depth: int) -> tuple[list[Any], int]:
    closing = _CLOSING[text[position]]
    values: list[Any] = []
    position = skip_space(text, position + 1)
    while not text.startswith(closing, position):
        value, position = read_literal(text, position, depth + 1)
        values.append(value)
        position = skip_space(text, position)
        if not text.startswith(closing, position):
            position = expect(text, position, ",")
    return values, position + 1


def _read_object(text: str, position: int, depth: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    position = skip_space(text, position + 1)
    while not text.startswith("}", position):
        key, position = read_literal(text, position, depth + 1)
        if isinstance(key, list | dict):
            raise Malformed("a key is no string")
        value, position = read_literal(text, expect(text, position, ":"), depth + 1)
        name = _key(key)
        if name in members:
            raise Malformed("a key comes twice")
        members[name] = value
        position = skip_space(text, position)
        if not text.startswith("}", position):
            position = expect(text, position, ",")
    return members, position + 1


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


def _number(written: str) -> int | float:
    plain = written.replace("_", "")
    if len(plain) > _MAX_DIGITS:
        raise Malformed("a number is too long")
    if "x" in plain.lower():
        return int(plain, 16)
    return float(plain) if set(".eE") & set(plain) else int(plain)


def render_pythonic_call(name: str, arguments: str) -> str:
    """Return a tool call as Python; arguments that are no JSON object are copied unchanged."""
    pairs = argument_pairs(arguments)
    if pairs is None:
        return f"{name}({arguments})"
    written = (f"{_rendered_key(key)}={_rendered(value)}" for key, value in pairs.items())
    return f"{name}({', '.join(written)})"


def _rendered_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z_][\w.-]*", key) else json.dumps(key, ensure_ascii=False)


def _rendered(value: Any) -> str:
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{', '.join(map(_rendered, value))}]"
        case dict():
            return f"{{{', '.join(f'{_rendered(key)}: {_rendered(item)}' for key, item in value.items())}}}"
        case _:
            return str(value)
