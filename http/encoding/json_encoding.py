"""Fast encoding of JSON as bytes, since a response needs some for every token."""

from __future__ import annotations

import json
from collections.abc import Iterator

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Line breaks that JSON allows in strings, but at which clients that use `str.splitlines` cut an event."""

_PIECE = 512
"""Array items to encode per call."""

LOWEST = -9999.0
"""Stand-in for minus infinity, which JSON does not have."""


def json_string(text: str) -> bytes:
    """Return text as a JSON string that leaves non-ASCII readable and contains no line breaks."""
    encoded = _encode(text)
    if encoded.isascii():
        return encoded.encode("ascii")
    # A lone surrogate becomes `\udXXX`, which is its JSON escape too.
    return encoded.translate(LINE_BREAKS).encode("utf-8", "backslashreplace")


def json_bytes(value: object) -> bytes:
    return _encode(value).encode("utf-8", "backslashreplace")


def json_bytes_in_pieces(value: object) -> bytes:
    """Return a value as JSON in UTF-8, encoding long arrays and objects piece by piece.

    The C encoder holds the GIL until it is done: use this on a worker thread.
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
    """Return a value as JSON in ASCII, which contains no line breaks."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def finite_logprob(logprob: float) -> float:
    """Return a log-probability rounded to six decimals and bounded below, since JSON has no infinity."""
    return round(max(logprob, LOWEST), 6)
