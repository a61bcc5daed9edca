"""WebSockets of hostile clients."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import trio

from greenroom.tests.attack.client.wire import MAKERS
from greenroom.tests.attack.requests.json_pieces import encode
from greenroom.tests.attack.requests.sockets import SocketHarm, frame, handshake
from greenroom.tests.attack.requests.steps import SocketMessage

SENDING = 5.0
"""Time limit of sending in seconds."""
LINGER = 2.0
"""Seconds in which a client waits for more after it has sent everything."""
_KEPT = 50_000
"""Bytes kept of the beginning and of the end of what the server sends."""
_TEXT = 1
_ENDS = (
    *(b'"response.completed"', b'"response.incomplete"', b'"response.failed"'),
    *(b'"type":"error"', b'"type": "error"', b"HTTP/1.1 4", b"HTTP/1.1 5"),
)
"""Marks in the last event of an answer, or in a refusal of the socket."""


async def do_harm(stream: trio.SocketStream, harm: SocketHarm, model: str) -> bytes:
    """Open a socket and do its harm; return the first and last bytes received."""
    received = bytearray()
    if not harm.reads:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    async with trio.open_nursery() as nursery:
        if harm.reads:
            nursery.start_soon(_read_into, stream, received)
        with trio.move_on_after(SENDING):
            await _send(stream, harm.sent(model), harm.pause)
        await trio.sleep(LINGER)
        nursery.cancel_scope.cancel("enough")
    if not harm.reads:
        with trio.move_on_after(0):
            received += await stream.receive_some()
    return bytes(received)


async def converse(stream: trio.SocketStream, step: SocketMessage) -> bytes:
    """Send a message; return the beginning and the end of what is received until its answer ends."""
    message = encode({"type": "response.create", **step.body}, MAKERS).encode()
    received = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_send, stream, [handshake({}), frame(_TEXT, message)], 0.0)
        async for data in stream:
            received += data
            if any(end in received[-_KEPT:] for end in _ENDS):
                break
            if len(received) > 2 * _KEPT:
                del received[_KEPT:-_KEPT]
        nursery.cancel_scope.cancel("the answer is there, or the server has closed")
    return bytes(received)


async def _send(stream: trio.SocketStream, pieces: Iterable[bytes], pause: float) -> None:
    try:
        for piece in pieces:
            await stream.send_all(piece)
            await trio.sleep(pause)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the server may close such a socket


async def _read_into(stream: trio.SocketStream, received: bytearray) -> None:
    try:
        async for data in stream:
            received += data
            if len(received) > 2 * _KEPT:
                del received[_KEPT:-_KEPT]
    except trio.BrokenResourceError:
        pass
