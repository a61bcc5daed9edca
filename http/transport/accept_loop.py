"""Accepting connections, holding each one's crash, and ending them all in time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

import structlog
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework
from hypercorn.utils import repr_socket_addr

from greenroom.http.answering.problem_documents import (
    ErrorMembers,
    no_members,
    problem_document,
    problem_headers,
)
from greenroom.http.transport.connection import LINGER, Connection, ServerConfig, new_request_id
from greenroom.http.transport.server_log import ServerLog
from greenroom.http.transport.socket_stream import STALL, SocketStream
from greenroom.schemas.problems import Problem
from greenroom.schemas.settings import Settings

log = structlog.get_logger(actor="http")

LARGEST_HEAD = 64 * 1024


class AcceptLoop:
    """The connections of one server.

    Args:
        app: Any ASGI application.
        stall: Seconds after which a reader that takes nothing is given up.
        error_members: What a document carries that refuses a client before a path is known.
    """

    def __init__(
        self,
        app: ASGIFramework,
        settings: Settings,
        stall: float = STALL,
        error_members: ErrorMembers = no_members,
    ) -> None:
        self._connections: set[Connection] = set()
        self._app = ASGIWrapper(app)
        self._config = _config(settings, error_members)
        self._context = WorkerContext(None)
        self._settings = settings
        self._stall = stall
        self._empty = trio.Event()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    async def run(
        self,
        listeners: Sequence[trio.SocketListener],
        drain: trio.Event,
        task_status: trio.TaskStatus[tuple[str, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Accept until `drain` is set, then let what was begun end in time.

        Args:
            task_status: Is told the addresses (`http://127.0.0.1:8000`).
        """
        async with trio.open_nursery() as connected:
            try:
                async with trio.open_nursery() as accepting:
                    serve = partial(trio.serve_listeners, handler_nursery=connected)
                    await accepting.start(serve, self._serve, listeners)
                    task_status.started(tuple(map(_address, listeners)))
                    await drain.wait()
                    accepting.cancel_scope.cancel("the server drains")
                for listener in listeners:
                    listener.socket.close()
                await self._finish()
            finally:
                # A send that waits for its reader is shielded: only the socket can end it.
                for connection in self._connections:
                    connection.cut()
                connected.cancel_scope.cancel("the server stops")

    async def _finish(self) -> None:
        await self._context.terminated.set()
        # The pool cuts what still runs when a quarter of the grace time, or 5 s, is left; then the last
        # words of those streams need a moment.
        reserve = min(5.0, self._settings.shutdown_timeout * 0.25)
        with trio.move_on_after(self._settings.shutdown_timeout - 0.9 * reserve) as share:
            while self._connections:
                self._empty = trio.Event()
                await self._empty.wait()
        if share.cancelled_caught:
            log.warning("connections cut", connections=self.connections)

    async def _serve(self, accepted: trio.SocketStream) -> None:
        stream = SocketStream(accepted, self._stall)
        if self.connections >= self._settings.max_connections:
            await self._refuse(stream)
            return
        connection = Connection(self._app, self._config, self._context, stream)
        self._connections.add(connection)
        try:
            await connection.run()
        except* OSError:
            # The client has gone while it was being looked at.
            pass
        except* Exception:
            log.exception("connection crashed")
        finally:
            self._connections.discard(connection)
            if not self._connections:
                self._empty.set()

    async def _refuse(self, stream: SocketStream) -> None:
        problem = Problem(
            503, "too_many_connections", "Too many connections are open; try again shortly.", retry_after=1
        )
        log.warning("connection refused", connections=self.connections)
        request_id = new_request_id()
        body = problem_document(problem, request_id, self._config.error_members)
        headers = {
            **problem_headers(problem),
            "x-request-id": request_id,
            "content-length": str(len(body)),
            "connection": "close",
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        try:
            with trio.move_on_after(LINGER):
                await stream.send_all(f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n".encode() + body)
                stream.say_eof()
                while await stream.receive_some():
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.close()


async def open_listeners(settings: Settings, inherited: Sequence[socket.socket]) -> list[trio.SocketListener]:
    """Sockets to accept from: the inherited ones, else `settings.host` and `.port`.

    Raises:
        OSError: The address cannot be bound.
    """
    if inherited:
        for sock in inherited:
            sock.setblocking(False)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in inherited]
    listeners = await trio.open_tcp_listeners(settings.port, host=settings.host)
    if settings.port == 0:
        # A name with several addresses would get a different port on each.
        for extra in listeners[1:]:
            await extra.aclose()
        del listeners[1:]
    return listeners


def _config(settings: Settings, error_members: ErrorMembers) -> ServerConfig:
    config = ServerConfig(error_members)
    config.keep_alive_timeout = settings.idle_connection
    config.keep_alive_max_requests = 2**62
    config.h11_max_incomplete_size = LARGEST_HEAD
    config.include_server_header = False
    config.logger_class = ServerLog
    return config


def _address(listener: trio.SocketListener) -> str:
    name: Any = listener.socket.getsockname()
    return f"http://{repr_socket_addr(listener.socket.family, name)}"
