"""Tool calls written as JSON objects, in the shapes that models use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from greenroom.engine.parsers.parsed_call import Malformed, ParsedCall, Unclosed

_SPACE = re.compile(r"[ \t\r\n]*")
# Text between two calls of a block: an array's brackets and commas, Llama's semicolons, a repeated marker,
# and the extra brace that small models often add.
_BETWEEN = re.compile(r"\}?(?:[ \t\r\n,;\[\]]|<tool_call>)*")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object, as a hook for its decoder.

    Raises:
        ValueError: A key occurs twice, so a value would be lost.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key comes twice")
    return members


_STRICT = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=without_repeats)
_LENIENT = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=without_repeats, strict=False)

NAMES = ("name", "tool_name", "function")
"""Keys of a call's name."""
ARGUMENTS = ("arguments", "parameters")
"""Keys of a call's arguments."""
LABELS = frozenset({"id", "call_id", "tool_call_id", "index", "type"})
"""Keys that only identify a call; they are ignored."""


def dump_json(value: Any) -> str:
    """Return the JSON text of a decoded value, encodable as UTF-8.

    Raises:
        Malformed: The value has no JSON form.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # JSON allows a lone surrogate only as an escape.
        return text if _encodable(text) else json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed(str(error)) from error


def normalize_object(text: str) -> str:
    """Return the JSON text of one object, unchanged if it is valid, else serialized again.

    Raises:
        Malformed: The text is not an object.
    """
    for decoder in (_STRICT, _LENIENT):
        try:
            value = decoder.decode(text)
        except (ValueError, RecursionError) as error:
            failure = error
            continue
        if not isinstance(value, dict):
            raise Malformed("the arguments are not an object")
        return text.strip() if decoder is _STRICT else dump_json(value)
    raise _malformed(failure)


def parse_json_calls(body: str) -> list[ParsedCall]:
    """Return all calls in a block: one object, several in a row, or an array.

    Raises:
        Unclosed: The text ends inside a string.
        Malformed: The text holds no call, or other text besides calls.
    """
    return _parse_objects(body, _call)


def parse_keyed_calls(body: str) -> list[ParsedCall]:
    """Return all calls in a block of objects whose only key is the tool's name: `{"name": {…}}`.

    Raises:
        Unclosed: The text ends inside a string.
        Malformed: The text holds no call, or other text besides calls.
    """
    return _parse_objects(body, _keyed_call)


def read_value(text: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at a position and the position of its end.

    Raises:
        Unclosed: The text ends inside a string.
        Malformed: The text is not JSON.
    """
    for decoder in (_STRICT, _LENIENT):
        try:
            return decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            failure = error
    raise _malformed(failure)


_Members = dict[str, tuple[Any, int, int]]


def _members(text: str, position: int) -> tuple[_Members, int]:
    """Return the members of the object at `position`, with the positions of their values, and its end."""
    for decoder in (_STRICT, _LENIENT):
        try:
            return _decode_members(text, position, decoder)
        except (ValueError, RecursionError) as error:
            failure = error
    raise _malformed(failure)


def _decode_members(text: str, position: int, decoder: json.JSONDecoder) -> tuple[_Members, int]:
    members: _Members = {}
    position = _expect(text, position, "{")
    while not text.startswith("}", position):
        key, position = decoder.raw_decode(text, position)
        if not isinstance(key, str):
            raise ValueError("a key is not a string")
        if key in members:
            raise ValueError("a key comes twice")
        start = _expect(text, position, ":")
        value, end = decoder.raw_decode(text, start)
        members[key] = (value, start, end)
        position = _space(text, end)
        if position == len(text) and ("arguments" in members or "parameters" in members):
            return members, position  # Only the last brace is missing; the arguments are complete.
        if not text.startswith("}", position):
            position = _expect(text, position, ",")
    return members, position + 1


def _parse_objects(body: str, read: Callable[[str, _Members], ParsedCall]) -> list[ParsedCall]:
    calls: list[ParsedCall] = []
    position = _BETWEEN.match(body, 0).end()  # type: ignore[union-attr]
    while position < len(body):
        members, position = _members(body, position)
        calls.append(read(body, members))
        position = _BETWEEN.match(body, position).end()  # type: ignore[union-attr]
    if not calls:
        raise Malformed("the block is empty")
    return calls


def _keyed_call(text: str, members: _Members) -> ParsedCall:
    if len(members) != 1:
        raise Malformed("a call is not one name with its arguments")
    ((name, (value, start, end)),) = members.items()
    return ParsedCall(name, normalize_object(value if isinstance(value, str) else text[start:end]))


def _call(text: str, members: _Members) -> ParsedCall:
    named = [members[key] for key in NAMES if key in members]
    given = [members[key] for key in ARGUMENTS if key in members]
    if len(named) > 1 or len(given) > 1 or not members.keys() <= {*NAMES, *ARGUMENTS, *LABELS}:
        raise Malformed("something in the call would be lost")
    name, start, _ = named[0] if named else (None, 0, 0)
    if isinstance(name, dict) and not given:
        inner, _ = _members(text, start)
        return _call(text, inner)
    if not isinstance(name, str) or not name:
        raise Malformed("the call has no name")
    value, start, end = given[0] if given else (None, 0, 0)
    if value is None or value == "":
        return ParsedCall(name, "{}")
    if isinstance(value, str):
        return ParsedCall(name, normalize_object(value))
    return ParsedCall(name, normalize_object(text[start:end]))


def _expect(text: str, position: int, character: str) -> int:
    position = _space(text, position)
    if not text.startswith(character, position):
        raise ValueError(f"{character} expected at {position}")
    return _space(text, position + 1)


def _space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]


def _malformed(error: Exception) -> Malformed:
    unterminated = isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")
    return (Unclosed if unterminated else Malformed)(str(error))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def render_json_call(name: str, arguments: str, key: str = "arguments") -> str:
    """Return a call as one JSON object; `arguments` is JSON text already."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": {arguments or "{}"}}}'
