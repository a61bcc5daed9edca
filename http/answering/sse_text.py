"""JSON strings and server-sent events as bytes, made quickly: one of each per token."""

from __future__ import annotations

import json
from functools import cache

DONE = b"data: [DONE]\n\n"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Legal in JSON, but clients that split a stream with `str.splitlines` would cut an event there."""


def json_string(text: str) -> bytes:
    """Text as a JSON string, readable where it is not ASCII, safe in a stream of lines."""
    encoded = _encode(text)
    if encoded.isascii():
        return encoded.encode("ascii")
    # A lone surrogate becomes `\udXXX`, which is its JSON escape too.
    return encoded.translate(_LINE_BREAKS).encode("utf-8", "backslashreplace")


def json_bytes(value: object) -> bytes:
    """Any value as JSON in UTF-8."""
    return _encode(value).encode("utf-8", "backslashreplace")


def json_text(value: object) -> bytes:
    """Any value as JSON, safe in a stream of lines."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


@cache
def system_fingerprint() -> str:
    """Which build answers."""
    from importlib.metadata import version

    return f"fp_greenroom_{version('greenroom')}"
