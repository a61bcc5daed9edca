"""Tool calls written as Python: `get_weather(city="Paris", from=2)`, in a list or one by one."""

from __future__ import annotations

import json
import re
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed
from greenroom.engine.parsers.values.json_calls import dump_json
from greenroom.engine.parsers.values.offered_tools import OfferedTools
from greenroom.engine.parsers.values.python_literals import expect, read_literal, skip_space
from greenroom.engine.parsers.values.tagged_arguments import argument_pairs

_CALLED = re.compile(r"(\w[\w.:/-]*)[ \t]*\(")
_KEY = re.compile(r"([A-Za-z_][\w.-]*|\"[^\"\\]*\"|'[^'\\]*')\s*=(?!=)")


def parse_pythonic_calls(body: str, offered: OfferedTools) -> list[ParsedCall]:
    """Return tool calls written as Python, in a list, one per line or separated by commas or semicolons.

    Argument names may be Python keywords, and values may be JSON literals.

    Raises:
        Unclosed: The text ends inside a call.
        Malformed: The text holds no call, or other text besides calls.
    """
    position, lists = skip_space(body, 0), 0
    while lists < 2 and body.startswith("[", position):  # Some models nest the list in another list.
        position, lists = skip_space(body, position + 1), lists + 1
    calls: list[ParsedCall] = []
    while position < len(body) and not (lists and body.startswith("]", position)):
        call, position = _read_call(body, position, offered)
        calls.append(call)
        position = skip_space(body, position)
        if body[position : position + 1] in (",", ";"):
            position = skip_space(body, position + 1)
    for _ in range(lists):
        position = expect(body, position, "]")
    if position < len(body):
        raise Malformed("something follows the calls")
    if not calls:
        raise Malformed("the block is empty")
    return calls


def _read_call(text: str, position: int, offered: OfferedTools) -> tuple[ParsedCall, int]:
    called = _CALLED.match(text, position)
    if called is None:
        raise Malformed("an expression is not a call")
    name = offered.meant(called.group(1))
    positional = offered.argument_names(name)
    arguments: dict[str, Any] = {}
    position = skip_space(text, called.end())
    while not text.startswith(")", position):
        key = _KEY.match(text, position)
        if key is not None:
            argument, position = key.group(1).strip("\"'"), skip_space(text, key.end())
        elif len(arguments) < len(positional):
            argument = positional[len(arguments)]
        else:
            raise (Unclosed if position >= len(text) else Malformed)("an argument has no name")
        if argument in arguments:
            raise Malformed("an argument comes twice")
        arguments[argument], position = read_literal(text, position)
        position = skip_space(text, position)
        if not text.startswith(")", position):
            position = expect(text, position, ",")
    return ParsedCall(name, dump_json(arguments)), position + 1


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
