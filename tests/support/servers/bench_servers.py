"""Threaded servers that send scripted responses to clients under test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11

Respond = Callable[[dict[str, Any]], Iterator[bytes]]
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(**fields: str) -> bytes:
    return event(choices=[{"index": 0, "delta": fields}])


def chunked(*parts: bytes) -> Iterator[bytes]:
    yield STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for part in parts:
        yield b"%x\r\n%b\r\n" % (len(part), part)
    yield b"0\r\n\r\n"


def stream_answer(body: dict[str, Any]) -> Iterator[bytes]:
    """Yield a whole streamed answer of `max_tokens` tokens, as most servers send it."""
    tokens = body["max_tokens"]
    usage = {"prompt_tokens": 5, "completion_tokens": tokens}
    words = [delta(content="hi ") for _ in range(tokens)]
    return chunked(
        delta(role="assistant", content=""), *words, event(choices=[], usage=usage), b"data: [DONE]\n\n"
    )


@contextmanager
def scripted_server(respond: Respond) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a server in threads; yield its address and the bodies that it received."""
    listener = socket.create_server(("127.0.0.1", 0))
    bodies: list[dict[str, Any]] = []

    def answer(connection: socket.socket) -> None:
        # The client may hang up at any time.
        with connection, suppress(ConnectionError, h11.RemoteProtocolError):
            protocol, body, target = h11.Connection(h11.SERVER), b"", b""
            while not isinstance(read_event := protocol.next_event(), h11.EndOfMessage):
                if read_event is h11.NEED_DATA:
                    protocol.receive_data(connection.recv(65536))
                elif isinstance(read_event, h11.Request):
                    target = read_event.target
                elif isinstance(read_event, h11.Data):
                    body += read_event.data
                elif isinstance(read_event, h11.ConnectionClosed):
                    return
            if target.startswith(b"/v1/models"):
                listed = b'{"data": [{"id": "fake"}]}'
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(listed), listed))
                return
            bodies.append(json.loads(body))
            for piece in respond(bodies[-1]):
                connection.sendall(piece)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", bodies
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
