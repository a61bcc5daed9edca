"""An application for connection tests, with routes that answer at once, stream, wait for ever, and count."""

from __future__ import annotations

from types import TracebackType

import trio
import trio.testing
from quart import Response, request
from quart.wrappers.response import ResponseBody
from quart_trio import QuartTrio

from greenroom.http.answering.current_request import request_resources
from greenroom.http.transport.request_connection import FlowControlledRequest, RequestConnection
from greenroom.tests.support.servers.http_servers import Server


class Endless(ResponseBody):
    """A body without end, or of `pieces` pieces."""

    def __init__(self, piece: bytes, ended: trio.Event, pieces: int = 2**62) -> None:
        self._piece, self._ended, self._pieces = piece, ended, pieces

    async def __aenter__(self) -> Endless:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> bytes:
        if not self._pieces:
            raise StopAsyncIteration
        self._pieces -= 1
        await trio.sleep(0.01)
        return self._piece


def make_app(ended: trio.Event | None = None) -> QuartTrio:
    """Return an application with routes that answer at once, stream, wait for ever, and echo."""
    ended = trio.Event() if ended is None else ended
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    app.request_class = FlowControlledRequest

    @app.get("/")
    async def at_once() -> str:
        return "ok"

    @app.get("/stream/<int:pieces>/<int:size>")
    async def stream(pieces: int, size: int) -> Response:
        response = Response(Endless(b"x" * size, ended, pieces))
        response.timeout = None
        return response

    @app.get("/wait")
    async def wait() -> Response:
        request_resources().callback(ended.set)
        await trio.sleep_forever()
        raise AssertionError

    @app.post("/length")
    async def length() -> str:
        return str(sum([len(part) async for part in request.body]))

    @app.post("/unread")
    async def unread() -> tuple[str, int]:
        return "not wanted", 413

    return app


async def wait_until_closed(server: Server) -> None:
    """Wait until the server has no connection left."""
    with trio.fail_after(300):
        while server.loop.connections:  # noqa: ASYNC110
            await trio.sleep(0.005)
