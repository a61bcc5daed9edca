"""A WebSocket that a test drives frame by frame."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from greenroom.tests.support.servers.http_servers import RawClient, Served, connected

PATH = "/v1/responses"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


class RawSocket:
    """An open WebSocket.

    Attributes:
        closed: The server's close frame, once received.
    """

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.closed: CloseConnection | None = None
        self.pongs: list[bytes] = []
        self._frames = Connection(ConnectionType.CLIENT)
        self._events: list[Any] = []

    async def send(self, message: Any, **fields: Any) -> None:
        """Send a message: a string unchanged, any other value as JSON."""
        text = message if isinstance(message, str) else json.dumps({**message, **fields})
        await self.client.send(self._frames.send(TextMessage(text)))

    async def send_event(self, event: TextMessage | BytesMessage | Ping | CloseConnection) -> None:
        """Send a frame."""
        await self.client.send(self._frames.send(event))

    async def send_binary(self, data: bytes) -> None:
        """Send a binary message."""
        await self.send_event(BytesMessage(data))

    async def receive(self) -> dict[str, Any] | None:
        """Return the next event; None when the server has closed."""
        text = ""
        while True:
            while not self._events:
                received = await self.client.stream.receive_some()
                if not received:
                    return None
                self._frames.receive_data(bytes(received))
                self._events += self._frames.events()
            match self._events.pop(0):
                case TextMessage(data, message_finished=finished):
                    text += data
                    if finished:
                        event = json.loads(text)
                        assert isinstance(event, dict)
                        return event
                case CloseConnection() as closed:
                    self.closed = closed
                    return None
                case Pong(payload):
                    self.pongs.append(bytes(payload))

    async def answer(self, message: Any, **fields: Any) -> list[dict[str, Any]]:
        """Send a message, and return all events of its response."""
        await self.send(message, **fields)
        return await self.rest()

    async def rest(self) -> list[dict[str, Any]]:
        """Return the events up to the end of the current response."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in ENDS:
            event = await self.receive()
            assert event is not None, f"closed after {events}: {self.closed}"
            events.append(event)
        return events

    async def wait_closed(self) -> CloseConnection | None:
        """Read until the server closes; return its close frame."""
        while await self.receive() is not None:
            pass
        return self.closed


def handshake(**headers: str) -> dict[str, str]:
    """Return the headers of a handshake, with changes."""
    return {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": KEY,
        **headers,
    }


@asynccontextmanager
async def open_socket(served: Served, **headers: str) -> AsyncIterator[RawSocket]:
    """Open a WebSocket; leaving the context drops the connection without a close frame."""
    async with connected(served.server) as client:
        await client.request("GET", PATH, b"", **handshake(**headers))
        head = await client.read_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        yield RawSocket(client)


async def until_closed(served: Served) -> None:
    """Wait until the server has no connection left."""
    while served.server.loop.connections:  # noqa: ASYNC110
        await trio.sleep(0.005)
