"""Fast encoding of answers: JSON as bytes, server-sent events, times, log-probabilities and vectors."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from greenroom.schemas.events.events import Token, TokenLogprob
from greenroom.schemas.events.result_events import Vector

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Line breaks that JSON allows in strings, but at which clients that use `str.splitlines` cut an event."""

_PIECE = 512  # Array items to encode per call

LOWEST = -9999.0  # Stand-in for minus infinity, which JSON does not have


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
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def finite_logprob(logprob: float) -> float:
    """Return a log-probability rounded to six decimals and bounded below, since JSON has no infinity."""
    return round(max(logprob, LOWEST), 6)


SERVER_SENT_EVENTS = "text/event-stream; charset=utf-8"


def data_event(document: Mapping[str, object]) -> bytes:
    return b"data: %b\n\n" % json_ascii(document)


def timestamp(seconds: float) -> str:
    """Format a point in time as RFC 3339, in UTC. `seconds`: Unix time in seconds."""
    second, microseconds = divmod(int(seconds * 1e6), 1_000_000)
    return f"{_second(second)}.{microseconds:06}Z" if microseconds else f"{_second(second)}Z"


@lru_cache(maxsize=16)
def _second(second: int) -> str:
    # Cached because every line of a stream has a time, and thousands fall into the same second.
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def token_logprobs(logprobs: Sequence[TokenLogprob]) -> bytes:
    return b"[%b]" % b",".join(map(_token_logprob, logprobs))


def _token_logprob(entry: TokenLogprob) -> bytes:
    top = b",".join(
        [b'{%b,"logprob":%.6f}' % (_token_members(token), max(value, LOWEST)) for token, value in entry.top]
    )
    members = (_token_members(entry.token), max(entry.logprob, LOWEST), top)
    return b'{%b,"logprob":%.6f,"top_logprobs":[%b]}' % members


@lru_cache(maxsize=65536)
def _token_members(token: Token) -> bytes:
    """Return the members that are the same for every occurrence of a token."""
    return b'"token":%b,"bytes":%b' % (json_string(token.text), json_ascii(list(token.bytes)))


_DIGITS = 9  # Significant digits that round-trip a float32
_SMALLEST = 1e-300
_UNIT = 1e-5  # Largest deviation from length 1 that counts as a unit vector

_encode_numbers = msgspec.json.Encoder().encode


def in_order(vectors: Iterable[Vector]) -> list[Vector]:
    return sorted(vectors, key=lambda vector: vector.index)


def numbers_of(vectors: Sequence[Vector]) -> int:
    """Return the total number of vector components."""
    return sum(len(vector.values) for vector in vectors) // 4


def vector_json(vector: Vector, *, unit: bool = False) -> bytes:
    """Return a vector as a JSON array of numbers with only significant digits. `unit`: scale the vector to
    length 1.
    """
    import numpy as np  # deferred: the engine imports it anyway, and the server starts faster without

    values = np.frombuffer(vector.values, "<f4").astype(np.float64)
    length = float(np.linalg.norm(values)) if unit else 1.0
    if length and abs(length - 1) > _UNIT:
        values /= length
    exponents = np.floor(np.log10(np.maximum(np.abs(values), _SMALLEST)))
    scale = 10.0 ** np.clip(_DIGITS - 1 - exponents, 0, 22)
    return _encode_numbers((np.round(values * scale) / scale).tolist())


def vector_base64(vector: Vector) -> bytes:
    """Return a vector as a JSON string: base64 of little-endian float32, as OpenAI writes it."""
    return b'"%b"' % base64.b64encode(vector.values)
