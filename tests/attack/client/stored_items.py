"""Attacks on the store: large items referenced often, and large pages that are never read."""

from __future__ import annotations

import json
import socket
from typing import Any

import trio

from greenroom.tests.attack.client.wire import request_head

_MEGABYTE = 1_000_000
_SILENCE = 2.0
"""Seconds in which a client reads nothing of its answer."""


async def read_nothing(port: int, megabytes: int, copies: int) -> None:
    """Store a conversation of `megabytes` MB, and have `copies` clients request all of it without reading."""
    conversation = await _store(port, megabytes)
    path = f"/v1/conversations/{conversation}/items"
    async with trio.open_nursery() as nursery:
        for _ in range(copies):
            nursery.start_soon(_ask_and_wait, port, path)


async def reference_request(port: int, model: str, mentions: int) -> bytes:
    """Store an item of a megabyte; return a request whose input references it `mentions` times."""
    conversation = await _store(port, 1)
    page = await _exchange(port, "GET", f"/v1/conversations/{conversation}/items", None)
    reference = {"type": "item_reference", "id": page["data"][0]["id"]}
    return _request("POST", "/v1/responses", {"model": model, "input": [reference] * mentions})


async def _store(port: int, megabytes: int) -> str:
    part = {"type": "input_text", "text": "x" * (_MEGABYTE // 1_000)}
    item = {"type": "message", "role": "user", "content": [part] * (1_000 * megabytes)}
    created = await _exchange(port, "POST", "/v1/conversations", {"items": [item]})
    return str(created["id"])


async def _ask_and_wait(port: int, path: str) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        await stream.send_all(_request("GET", path, None))
        await trio.sleep(_SILENCE)


async def _exchange(port: int, method: str, path: str, body: dict[str, Any] | None) -> Any:
    """Send a request; return the JSON of its answer.

    Raises:
        OSError: The server refused it.
    """
    received = bytearray()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(_request(method, path, body))
        async for data in stream:
            received += data
    head, _, answer = bytes(received).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise OSError(head[:100])
    return json.loads(answer)


def _request(method: str, path: str, body: dict[str, Any] | None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    return (
        request_head(method, path, {"content-type": "application/json", "content-length": str(len(data))})
        + data
    )
