"""JSON as bytes, made quickly: an answer needs some for every token."""

from __future__ import annotations

import json

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Legal in JSON, but clients that split a stream with `str.splitlines` would cut an event there."""

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


def json_ascii(value: object) -> bytes:
    """Return a value as JSON in ASCII, safe in a stream of lines."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def finite_logprob(logprob: float) -> float:
    """Return a log-probability as JSON can have it, with the digits that mean something."""
    return round(max(logprob, LOWEST), 6)
