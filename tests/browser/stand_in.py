"""A server of the real pages whose API answers what a test says: hostile models, and very fast ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from greenroom.http.pages.page_routes import CONTENT_SECURITY_POLICY, INDEX, site_files

Pieces = Callable[[], Iterable[tuple[str, Any]]]

STATUS = {
    "status": "ok",
    "problems": [],
    "version": "0.1.0",
    "pid": 1,
    "started_at": 0.0,
    "memory_limit": None,
    "database": None,
    "audit": True,
    "inspector": True,
}


def text_events(
    pieces: Iterable[str], *, reasoning: str = "", call: str = "", second_call: str = "", tool: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the events of a response with these pieces of text."""
    if reasoning:
        yield _added(7, {"type": "reasoning"})
        yield _delta("response.reasoning_summary_text.delta", 7, reasoning)
        yield "response.output_item.done", {"type": "response.output_item.done", "output_index": 7}
    for index, name in ((8, call), (10, second_call)):
        if name:
            yield _added(index, {"type": "function_call", "call_id": f"c{index}", "name": name})
            yield _delta("response.function_call_arguments.delta", index, name)
    if tool:
        members = {"server_label": tool, "name": tool, "arguments": tool}
        calls = ("mcp_call", "output"), ("mcp_call", "error"), ("mcp_approval_request", "id")
        kinds = ("mcp_list_tools", "error"), *calls
        yield from _whole([{"type": kind, **members, member: tool} for kind, member in kinds])
    yield _added(9, {"type": "message"})
    for piece in pieces:
        yield _delta("response.output_text.delta", 9, piece)
    yield _completed()


def item_events(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the events of a response with these items."""
    yield from _whole(items)
    yield _completed()


def _whole(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for index, item in enumerate(items, 11):
        yield _added(index, item)
        done = "response.output_item.done"
        yield done, {"type": done, "output_index": index, "item": item}


def _completed() -> tuple[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}}
    response = {"model": "stand-in", "usage": usage, "incomplete_details": None, "error": None}
    return "response.completed", {"type": "response.completed", "response": response}


def _added(index: int, item: Mapping[str, Any]) -> tuple[str, Any]:
    name = "response.output_item.added"
    return name, {"type": name, "output_index": index, "item": item}


def _delta(name: str, index: int, delta: str) -> tuple[str, Any]:
    return name, {"type": name, "output_index": index, "delta": delta}


class StandIn:
    """Answers of the server, which may be changed at any time.

    Attributes:
        documents: JSON documents of GET by path, without the query.
        events: Events by path, after which the stream stays open.
        answer: Returns the events of the next response.
        asked: Bodies of the requests for responses.
    """

    def __init__(self) -> None:
        self.address = ""
        self.documents: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "stand-in", "state": "ready", "type": "text"}]},
            "/admin/status": STATUS,
            "/admin/models": {"models": []},
        }
        self.events: dict[str, list[tuple[str, Any]]] = {}
        self.answer: Pieces = lambda: text_events(["Hello"])
        self.asked: list[Any] = []
        self.ending = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = INDEX if path == "/" else path.removeprefix("/pages/")
        if path == "/" or path.startswith("/pages/"):
            self._file(name)
        elif path in self.stand_in.documents:
            self._send(200, "application/json", json.dumps(self.stand_in.documents[path]).encode())
        elif path == "/metrics":
            self._send(200, "text/plain", b"")
        elif path in self.stand_in.events:
            self._stream(self.stand_in.events[path])
            self.stand_in.ending.wait()
        else:
            self._send(404, "application/json", b'{"detail": "gone"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/v1/responses":
            self.stand_in.asked.append(json.loads(body))
            self._stream(self.stand_in.answer())
            self.close_connection = True
        elif self.path in self.stand_in.events:
            self._stream(self.stand_in.events[self.path])
            self.stand_in.ending.wait()
        else:
            self._send(404, "application/json", b'{"detail": "gone"}')

    def _file(self, name: str) -> None:
        file = site_files().get(name)
        if file is None:
            self._send(404, "text/plain", b"")
        else:
            self._send(200, file.content_type, file.compressed, "gzip")

    def _send(self, status: int, kind: str, body: bytes, encoding: str = "identity") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-encoding", encoding)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", CONTENT_SECURITY_POLICY)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Iterable[tuple[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            self.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
            self.wfile.flush()


@contextmanager
def standing_in() -> Iterator[StandIn]:
    """Run a stand-in on a free port."""
    stand_in = StandIn()
    handler = type("Handler", (_Handler,), {"stand_in": stand_in})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]
    stand_in.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stand_in
    finally:
        stand_in.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
