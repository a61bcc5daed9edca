"""Python's literals, and JSON's names for them, read where they stand in a text. Nothing is evaluated."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed, Unclosed

_SPACE = re.compile(r"(?:[ \t\r\n]|\\\n)*")
_NUMBER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])")
_NAMES = {
    **{"True": True, "False": False, "None": None},
    **{"true": True, "false": False, "null": None},
}
_NAME = re.compile(r"(?:True|False|None|true|false|null)(?!\w)")
_STRING_START = re.compile(r"""([rR]?)(\"""|'''|"|')""")
STRING_PARTS = {
    quote: re.compile(rf"(?:[^\\{quote[0]}]++|\\.|(?!{quote}){quote[0]})*+", re.DOTALL)
    for quote in ('"', "'", '"""', "'''")
}
"""What stands between the quotes of a string, by the quotes."""
_ESCAPE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|[0-3]?[0-7]{1,2}|[\n'\"\\abfnrtv])"
)
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_MAX_DEPTH = 100
"""Levels; each is a call of Python's."""
_MAX_DIGITS = 4_000
"""Of an integer: Python reads no more than 4,300, and in time that grows with their square."""


def skip_space(text: str, position: int) -> int:
    """Return where the next thing stands."""
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


def expect(text: str, position: int, character: str) -> int:
    """Return where what follows `character` stands, which has to come next.

    Raises:
        Unclosed: The text ends before it.
        Malformed: Something else comes.
    """
    position = skip_space(text, position)
    if not text.startswith(character, position):
        raise (Unclosed if position >= len(text) else Malformed)(f"{character} expected")
    return skip_space(text, position + len(character))


def read_literal(text: str, position: int, depth: int = 0) -> tuple[Any, int]:
    """Return the value that stands at `position`, and where it ends.

    Raises:
        Unclosed: The text ends inside it.
        Malformed: There is none.
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
    """Read a string; several in a row are one, as in Python."""
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
    """Return what the inside of a string stands for."""
    return _ESCAPE.sub(_unescape, text)


def _unescape(escape: re.Match[str]) -> str:
    """Return the character; an escape that Python does not know never comes here and stays as it is."""
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
