"""Bytes of hostile WebSockets (RFC 6455), from the handshake on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import attrs

PATH = "/v1/responses"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING = 0, 1, 2, 8, 9
_FINAL, _COMPRESSED, _MASKED = 0x80, 0x40, 0x80
_MEGABYTE = 1_000_000
_CREATE = {"type": "response.create", "store": False, "input": "Go on", "temperature": 0}


@attrs.frozen
class SocketHarm:
    """A way in which a WebSocket does harm.

    Args:
        pieces: Function from a model's name to what is sent, in pieces.
        headers: Headers of the handshake that replace or extend the usual ones.
        pause: Seconds between two pieces.
        reads: False to read nothing of what the server sends.
        refused: True if the server must not open the socket.
    """

    pieces: Callable[[str], Iterator[bytes]]
    headers: Mapping[str, str] = attrs.field(factory=dict)
    pause: float = 0.0
    reads: bool = True
    refused: bool = False

    def sent(self, model: str) -> Iterator[bytes]:
        """Yield all that is sent."""
        if self.pieces is not _slow_handshake:
            yield handshake(self.headers)
        yield from self.pieces(model)


def handshake(headers: Mapping[str, str]) -> bytes:
    """Return a request for a WebSocket."""
    fields = {
        "host": "localhost",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": KEY,
        **headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"GET {PATH} HTTP/1.1\r\n{lines}\r\n".encode()


def frame(opcode: int, data: bytes = b"", *, flags: int = _FINAL, length: int | None = None) -> bytes:
    """Return a client's frame, whose mask of zeros leaves the data as it is.

    Args:
        length: Length that the frame announces; None for the true one.
    """
    size = len(data) if length is None else length
    if size < 126:
        head = bytes((flags | opcode, _MASKED | size))
    elif size < 1 << 16:
        head = bytes((flags | opcode, _MASKED | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((flags | opcode, _MASKED | 127)) + size.to_bytes(8, "big")
    return head + bytes(4) + data


def text_message(value: Any) -> bytes:
    """Return a message of JSON."""
    return frame(_TEXT, json.dumps(value).encode())


def _slow_handshake(_model: str) -> Iterator[bytes]:
    return (bytes((byte,)) for byte in handshake({}))


def _half_handshake(_model: str) -> Iterator[bytes]:
    yield from ()


def _huge_frame(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, length=2**62)
    yield from [b" " * _MEGABYTE] * 24


def _huge_message(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, b'{"type": "response.create", "input": "', flags=0)
    yield from [frame(_CONTINUED, b"a" * _MEGABYTE, flags=0)] * 24


def _tiny_frames(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, b'{"type": "', flags=0)
    yield from [frame(_CONTINUED, b"a", flags=0) * 10_000] * 30


def _empty_frames(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, flags=0)
    yield from [frame(_CONTINUED, flags=0) * 20_000] * 20


def _compressed_bomb(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, _bomb(), flags=_FINAL | _COMPRESSED)


@cache
def _bomb() -> bytes:
    """Return 100 MB of spaces, compressed as permessage-deflate does (RFC 7692)."""
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    return b"".join(deflate.compress(b" " * _MEGABYTE) for _ in range(100)) + deflate.flush()


def _half_message(model: str) -> Iterator[bytes]:
    message = json.dumps({**_CREATE, "model": model}).encode()
    yield frame(_TEXT, message[: len(message) // 2], flags=0)


def _half_frame(model: str) -> Iterator[bytes]:
    yield text_message({**_CREATE, "model": model})[:40]


def _long_answers(model: str) -> Iterator[bytes]:
    yield from [text_message({**_CREATE, "model": model, "max_output_tokens": 2_000})] * 4


def _large_echoes(model: str) -> Iterator[bytes]:
    """Yield messages whose answers are as large as they are, several times."""
    tools = [{"type": "function", "name": "look"}, {"type": "web_search", "note": "x" * 900_000}]
    yield from [text_message({**_CREATE, "model": model, "tools": tools, "generate": False})] * 8


def _pings(_model: str) -> Iterator[bytes]:
    yield from [frame(_PING, b"p" * 125) * 1_000] * 40


def _many_messages(model: str) -> Iterator[bytes]:
    yield from [text_message({**_CREATE, "model": model, "max_output_tokens": 1}) * 100] * 20


def _no_messages(_model: str) -> Iterator[bytes]:
    yield from [frame(_TEXT, b"{") * 1_000] * 20


def _deep_message(_model: str) -> Iterator[bytes]:
    yield frame(_TEXT, b'{"type": "response.create", "input": ' + b"[" * 2_000_000)


def _all_at_once(model: str) -> Iterator[bytes]:
    """Yield a message, a close and another message, as a client that does not wait for the first answer."""
    message = text_message({**_CREATE, "model": model, "max_output_tokens": 50})
    yield message + frame(_CLOSE, (1000).to_bytes(2, "big")) + message


def _malformed(_model: str) -> Iterator[bytes]:
    yield frame(_CLOSE, b"x" * 125) + frame(_BINARY, b"\0" * 1_000) + b"\xff" * 10_000


HARMS: Mapping[str, SocketHarm] = {
    "slow handshake": SocketHarm(_slow_handshake, pause=0.02),
    "no message": SocketHarm(_half_handshake),
    "huge frame": SocketHarm(_huge_frame),
    "huge message": SocketHarm(_huge_message),
    "tiny frames": SocketHarm(_tiny_frames),
    "empty frames": SocketHarm(_empty_frames),
    "compressed bomb": SocketHarm(
        _compressed_bomb, {"sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}
    ),
    "half a message": SocketHarm(_half_message),
    "half a frame": SocketHarm(_half_frame),
    "long answers unread": SocketHarm(_long_answers, reads=False),
    "large answers unread": SocketHarm(_large_echoes, reads=False),
    "ping flood": SocketHarm(_pings),
    "ping flood unread": SocketHarm(_pings, reads=False),
    "many messages": SocketHarm(_many_messages),
    "many messages unread": SocketHarm(_many_messages, reads=False),
    "no JSON": SocketHarm(_no_messages),
    "deep JSON": SocketHarm(_deep_message),
    "message and close": SocketHarm(_all_at_once),
    "malformed frames": SocketHarm(_malformed),
    "foreign origin": SocketHarm(_long_answers, {"origin": "https://evil.example"}, refused=True),
    "no origin": SocketHarm(_long_answers, {"origin": "null"}, refused=True),
    "cross-site": SocketHarm(_long_answers, {"sec-fetch-site": "cross-site"}, refused=True),
    "foreign host": SocketHarm(_long_answers, {"host": "evil.example"}, refused=True),
}
"""Hostile WebSockets by name."""
