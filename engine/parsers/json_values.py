"""JSON values of tool calls, and the keys of calls that are JSON objects; arguments between tags."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from greenroom.engine.parsers.parser import Malformed, Unclosed


def refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object, as a hook for its decoder. Raises ValueError: A key occurs twice,
    so a value would be lost.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key comes twice")
    return members


_STRICT = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=without_repeats)
_LENIENT = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=without_repeats, strict=False)

NAMES = ("name", "tool_name", "function")  # Keys of a call's name
ARGUMENTS = ("arguments", "parameters")  # Keys of a call's arguments
LABELS = frozenset({"id", "call_id", "tool_call_id", "index", "type"})
"""Keys that only identify a call; they are ignored."""


def dump_json(value: Any) -> str:
    """Return the JSON text of a decoded value, encodable as UTF-8. Raises Malformed: the value has no JSON
    form.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # JSON allows a lone surrogate only as an escape.
        return text if _is_encodable(text) else json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Malformed(str(error)) from error


def normalize_object(text: str) -> str:
    """Return the JSON text of one object, unchanged if it is valid, else serialized again. Raises Malformed:
    the text is not an object.
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


def read_value(text: str, position: int) -> tuple[Any, int]:
    """Return the JSON value at a position and the position of its end. Raises Unclosed: the text ends inside
    a string. Raises Malformed: the text is not JSON.
    """
    for decoder in (_STRICT, _LENIENT):
        try:
            return decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            failure = error
    raise _malformed(failure)


def _malformed(error: Exception) -> Malformed:
    unterminated = isinstance(error, json.JSONDecodeError) and error.msg.startswith("Unterminated string")
    return (Unclosed if unterminated else Malformed)(str(error))


def encodable(arguments: str) -> str:
    """Return JSON text that UTF-8 can encode, in which a lone surrogate is an escape."""
    return arguments if _is_encodable(arguments) else json.dumps(json.loads(arguments))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def render_json_call(name: str, arguments: str, key: str = "arguments") -> str:
    """Return a call as one JSON object; `arguments` is JSON text already."""
    return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": {arguments or "{}"}}}'


_MAX_INDEX_DIGITS = 6


def value_at(document: Any, reference: str) -> Any:
    """Return the value at `#` or `#/…`, a JSON pointer as a fragment (RFC 6901); None if there is none."""
    if reference == "#":
        return document
    value = document
    for part in unquote(reference.removeprefix("#/")).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_INDEX_DIGITS


_INSIDE = {'"': re.compile(r'["\\]'), "'": re.compile(r"['\\]")}


class JsonScanner:
    """Follows one JSON object or array through pieces of text; assumes valid JSON."""

    _outside = re.compile(r'["{}\[\]]')

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def feed(self, text: str, position: int = 0) -> int:
        """Return the index behind the bracket that closes the value, or -1 if the value continues.
        `position`: start of the next piece in `text`.
        """
        if self._escaped and position < len(text):
            position += 1
            self._escaped = False
        while True:
            found = (_INSIDE[self._quote] if self._quote else self._outside).search(text, position)
            if found is None:
                return -1
            position = found.end()
            character = found.group()
            if character in _INSIDE:
                self._quote = "" if self._quote else character
            elif character == "\\":
                self._escaped = position == len(text)
                position += 1
            else:
                self._depth += 1 if character in "{[(" else -1
                if self._depth <= 0:
                    return position


class PythonScanner(JsonScanner):
    """Follows one Python list, with strings in either kind of quotes."""

    _outside = re.compile(r"""["'{}\[\]()]""")


def argument_pairs(arguments: str) -> dict[str, Any] | None:
    """Return the arguments of a call in the history; None if they are not a JSON object. `arguments`: text
    sent by the client, which may be invalid JSON.
    """
    try:
        pairs = json.loads(arguments or "{}")
        dump_json(pairs)
    except (ValueError, RecursionError, Malformed):
        return None
    return pairs if isinstance(pairs, dict) else None


def written_value(value: object) -> str:
    """Return a value as text between tags: an unquoted string, or JSON."""
    return value if isinstance(value, str) else dump_json(value)
