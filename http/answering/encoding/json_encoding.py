"""JSON as bytes, made quickly: an answer needs some for every token."""

from __future__ import annotations

import json
from collections.abc import Iterator

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Legal in JSON, but clients that split a stream with `str.splitlines` would cut an event there."""

_PIECE = 512
"""Items of an array that are encoded at once."""

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have."""


def json_string(text: str) -> bytes:
    """Return text as a JSON string, readable where it is not ASCII, safe in a stream of lines."""
    encoded = _encode(text)
    if encoded.isascii():
        return encoded.encode("ascii")
    # A lone surrogate becomes `\udXXX`, which is its JSON escape too.
    return encoded.translate(LINE_BREAKS).encode("utf-8", "backslashreplace")


def json_bytes(value: object) -> bytes:
    """Return a value as JSON in UTF-8."""
    return _encode(value).encode("utf-8", "backslashreplace")


def json_bytes_in_pieces(value: object) -> bytes:
    """Return the same, encoding no more than a piece of a long array or object at once.

    The encoder is C, and lets no other thread run before it is done: use this on a thread beside others.
    """
    return b"".join(_pieces(value))


def _pieces(value: object) -> Iterator[bytes]:
    match value:
        case dict():
            yield b"{"
            for index, (name, member) in enumerate(value.items()):
                yield (b"," if index else b"") + json_bytes(name) + b":"
                yield from _pieces(member)
            yield b"}"
        case list() | tuple() if len(value) > _PIECE or any(isinstance(item, dict | list) for item in value):
            yield b"["
            if len(value) > _PIECE:
                for at in range(0, len(value), _PIECE):
                    yield (b"," if at else b"") + json_bytes(value[at : at + _PIECE])[1:-1]
            else:
                for index, item in enumerate(value):
                    yield b"," if index else b""
                    yield from _pieces(item)
            yield b"]"
        case _:
            yield json_bytes(value)


def json_ascii(value: object) -> bytes:
    """Return a value as JSON in ASCII, safe in a stream of lines."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def finite_logprob(logprob: float) -> float:
    """Return a log-probability as JSON can have it, with the digits that mean something."""
    return round(max(logprob, LOWEST), 6)
