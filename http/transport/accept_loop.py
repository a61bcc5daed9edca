"""The accept loop: it isolates and logs crashes of connections, and closes all of them on shutdown."""

from __future__ import annotations

import errno
import os
import resource
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework, ResponseSummary, WWWScope
from hypercorn.utils import repr_socket_addr

from greenroom.http.transport.bound_sockets import bind_sockets
from greenroom.http.transport.connection import LINGER, Connection, discard
from greenroom.http.transport.http11 import ServerConfig
from greenroom.http.transport.request_connection import ANSWERED, log_fields_of
from greenroom.http.transport.request_head import NO_RECORDS, OF_STRANGERS, ClosingResponses, client_of_head
from greenroom.http.transport.socket_stream import SEND_TIMEOUT, SocketStream
from greenroom.http.transport.tls import Certificates, TlsStream
from greenroom.http.transport.web_socket import NO_WEB_SOCKETS, WebSockets
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, draining, too_many_connections
from greenroom.schemas.settings.settings import Settings

log = get_logger(actor="http")

MAX_HEAD_BYTES = 64 * 1024  # Limit on the head of a request, in bytes (notes/http.md)
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)
"""Errors of a system without a descriptor or memory for another connection."""
DRAIN_INTERVAL = 0.1  # Polling interval of a shutdown, in seconds
DRAIN_LINGER = 0.3  # Seconds that idle clients get to notice the shutdown


async def open_listeners(settings: Settings, inherited: Sequence[socket.socket]) -> list[trio.SocketListener]:
    """Return the listening sockets: inherited ones, else new ones on the addresses of the settings. Raises
    OSError: an address cannot be bound; its `filename` says which.
    """
    sockets = inherited or await trio.to_thread.run_sync(bind_sockets, settings, log.warning)
    for sock in sockets:
        sock.setblocking(False)
    return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in sockets]


def close_listeners(listeners: Sequence[trio.SocketListener]) -> None:
    for listener in listeners:
        listener.socket.close()


class AcceptLoop:
    """Accepts and tracks the connections of one server.

    Args:
        send_timeout: Time limit for a client to accept data, in seconds.
        responses: Makes the responses to requests that are refused before they reach the app.
        web_sockets: WebSocket handlers by path; upgrades on other paths are ignored.
        certificates: Certificate of the connections; None for plain HTTP.
    """

    def __init__(
        self,
        app: ASGIFramework,
        settings: Settings,
        send_timeout: float = SEND_TIMEOUT,
        responses: ClosingResponses = NO_RECORDS,
        web_sockets: WebSockets = NO_WEB_SOCKETS,
        certificates: Certificates | None = None,
    ) -> None:
        self._connections: set[Connection] = set()
        self._app = ASGIWrapper(app)
        self._config = _config(settings, responses, web_sockets)
        self._context = WorkerContext(None)
        self._settings = settings
        self._send_timeout = send_timeout
        self._certificates = certificates
        self._all_closed = trio.Event()
        """Set when the last connection closes during a shutdown."""

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def run(
        self,
        listeners: Sequence[trio.SocketListener],
        drain: trio.Event,
        task_status: trio.TaskStatus[tuple[str, ...]] = trio.TASK_STATUS_IGNORED,
        *,
        shared: bool = False,
    ) -> None:
        """Accept connections until `drain` is set, then shut down within the time limit.

        Clients that come during the shutdown are told to retry.

        Args:
            shared: True if another process will accept clients on these listeners, so that none is refused.
            task_status: Receives the addresses (`http://127.0.0.1:8000`).
        """
        wanted = self._settings.max_connections
        self._limit, at_once = connection_capacity(wanted)
        if self._limit < wanted:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            log.warning("too few descriptors", descriptors=soft, connections=self._limit, wanted=wanted)
        self._refusals = Refusals(at_once, self._config.responses)
        async with trio.open_nursery() as connected:
            try:
                async with trio.open_nursery() as accepting:
                    for listener in listeners:
                        accepting.start_soon(self._accept, listener, connected)
                    task_status.started(tuple(map(self._address, listeners)))
                    await drain.wait()
                    if shared:
                        accepting.cancel_scope.cancel("the server drains")
                        close_listeners(listeners)
                    await self._wait_until_closed()
                    accepting.cancel_scope.cancel("the server stops")
            finally:
                close_listeners(listeners)
                # A blocked send is shielded from cancellation: only closing the socket ends it.
                for connection in self._connections:
                    connection.abort()
                connected.cancel_scope.cancel("the server stops")
                self._refusals.close()

    async def _accept(self, listener: trio.SocketListener, connected: trio.Nursery) -> None:
        somebody_waits = False
        while True:
            try:
                accepted = await listener.accept()
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                if somebody_waits:
                    await self._refusals.refuse_next(listener)
                else:
                    # `accept` fails even without a waiting client; by the next one, it may succeed.
                    await trio.lowlevel.wait_readable(listener.socket)
                somebody_waits = not somebody_waits
                continue
            somebody_waits = False
            drains = self._context.terminated.is_set()
            if drains or self.connections >= self._limit:
                reason, problem = ("draining", draining()) if drains else ("max_connections", None)
                if self._context_of(listener) is not None:
                    self._refusals.close_at_once(accepted, reason)
                else:
                    connected.start_soon(self._refusals.refuse, accepted, reason, LINGER, problem)
                continue
            self._refusals.on_accepted()
            context = self._context_of(listener)
            if context is None:
                stream = SocketStream(accepted, self._send_timeout)
            else:
                stream = TlsStream(accepted, context, self._send_timeout)
            try:
                connection = Connection(self._app, self._config, self._context, stream)
            except OSError:  # The client has disconnected.
                stream.close()
                continue
            self._connections.add(connection)
            connected.start_soon(self._serve_connection, connection)

    def _context_of(self, listener: trio.SocketListener) -> ssl.SSLContext | None:
        """Return the certificate of a listener's connections; a Unix socket needs none."""
        is_path = listener.socket.family == socket.AF_UNIX
        return None if is_path or self._certificates is None else self._certificates.context

    def _address(self, listener: trio.SocketListener) -> str:
        name: Any = listener.socket.getsockname()
        if listener.socket.family == socket.AF_UNIX:
            return f"unix:{name}"
        scheme = "http" if self._context_of(listener) is None else "https"
        return f"{scheme}://{repr_socket_addr(listener.socket.family, name)}"

    async def _wait_until_closed(self) -> None:
        """Wait for running responses except stalled ones, then briefly for idle connections."""
        await self._context.terminated.set()
        for connection in tuple(self._connections):
            connection.drain()
        # The pool fails running generations when a quarter of the time, or 5 s, is left. Their last
        # chunks need a moment.
        reserve = min(5.0, self._settings.shutdown_timeout * 0.25)
        with trio.move_on_after(self._settings.shutdown_timeout - 0.9 * reserve):
            while any(connection.is_answering for connection in self._connections):
                await self._wait_for_all_closed(DRAIN_INTERVAL)
            await self._wait_for_all_closed(DRAIN_LINGER)
        if self._connections:
            log.warning("connections aborted", connections=self.connections)

    async def _wait_for_all_closed(self, seconds: float) -> None:
        if self._connections:
            with trio.move_on_after(seconds):
                await self._all_closed.wait()

    async def _serve_connection(self, connection: Connection) -> None:
        try:
            await connection.run()
        except Exception:
            log.exception("connection crashed")
        finally:
            connection.abort()
            self._connections.discard(connection)
            if not self._connections and self._context.terminated.is_set():
                self._all_closed.set()


def _config(settings: Settings, responses: ClosingResponses, web_sockets: WebSockets) -> ServerConfig:
    config = ServerConfig(responses, web_sockets)
    config.keep_alive_timeout = settings.idle_connection
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    config.include_server_header = False
    config.logger_class = ServerLog
    return config


SPARE_LINGER = 0.05  # Seconds that a client on the spare descriptor may take: others wait for it
RETRY = 0.1  # Seconds until the next attempt if the system cannot even accept a connection to refuse it
HEAD_WAIT = 0.05
"""Longest wait for the head of a refused request, in seconds; it tells the protocol of the error document."""
CALM = 1.0  # Seconds without a refusal after which an episode is over


class Refusals:
    """Refuses connections beyond the limit. `at_once`: limit on open refused connections; beyond it the
    oldest one is closed.
    """

    def __init__(self, at_once: int, responses: ClosingResponses) -> None:
        self._at_once = at_once
        self._responses = responses
        self._lingering: deque[trio.CancelScope] = deque()
        self._spare = SpareDescriptor()
        self._spare_lock = trio.Lock()
        self._refused = 0
        self._last = 0.0

    async def refuse(
        self, accepted: trio.SocketStream, reason: str, linger: float = LINGER, problem: Problem | None = None
    ) -> None:
        """Send a client an error that tells it to retry, and close its connection.

        Args:
            linger: Seconds to keep reading, so that the client sees the response and not a TCP reset.
            problem: Problem that it is told; None for that of too many connections.
        """
        self._count(reason)
        stream = SocketStream(accepted)
        crowded = len(self._lingering) >= self._at_once
        if crowded:
            self._lingering[0].cancel("another one is refused")
        scope = trio.CancelScope(relative_deadline=linger)
        self._lingering.append(scope)
        try:
            with scope:
                head = await _read_head(stream, 0.0 if crowded else min(HEAD_WAIT, linger / 2))
                # The empty buffer of a new socket takes the whole response at once.
                told = too_many_connections() if problem is None else problem
                stream.send_now(self._responses.refuse(told, *client_of_head(head)))
                stream.send_eof()
                await discard(stream.receive_some)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._lingering.remove(scope)
            stream.close()

    def close_at_once(self, accepted: trio.SocketStream, reason: str) -> None:
        """Close the connection of a client that could read an error only after a handshake."""
        self._count(reason)
        accepted.socket.close()

    async def refuse_next(self, listener: trio.SocketListener) -> None:
        """Wait for a client, accept it on the spare descriptor, and refuse it."""
        await trio.lowlevel.wait_readable(listener.socket)
        async with self._spare_lock:
            self._spare.release()
            try:
                with trio.move_on_after(RETRY):
                    await self.refuse(await listener.accept(), "descriptors", SPARE_LINGER)
            except OSError:
                self._count("descriptors", clients=0)
                await trio.sleep(RETRY)
            finally:
                self._spare.reserve()

    def on_accepted(self) -> None:
        if self._last and trio.current_time() - self._last > CALM:
            log.info("connections accepted again", refused=self._refused)
            self._refused, self._last = 0, 0.0

    def close(self) -> None:
        """Release the spare descriptor for good."""
        self._spare.release()

    def _count(self, reason: str, clients: int = 1) -> None:
        if not self._last:
            log.warning("connections refused", reason=reason)
        self._refused += clients
        self._last = trio.current_time()


async def _read_head(stream: SocketStream, seconds: float) -> bytes:
    """Return the head of the request, as far as it arrives in time."""
    head = stream.receive_now()
    if not head and seconds:
        with trio.move_on_after(seconds, shield=True):  # A client is answered even if another displaces it.
            await stream.wait_readable()
            head = stream.receive_now()
    return head


FILES = 256  # Descriptors reserved for other uses: weight files, cache blocks, pipes, logs
REFUSALS = 32  # Largest number of connections beyond the limit that are refused concurrently


def needed_descriptors(max_connections: int) -> int:
    return max_connections + REFUSALS + FILES + _open_descriptors()


def connection_capacity(max_connections: int) -> tuple[int, int]:
    """Return the numbers of connections and of concurrent refusals that the descriptor limit allows.

    If descriptors are scarce, a third of them is reserved for files and an eighth for refusals.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return max_connections, REFUSALS
    free = max(soft - _open_descriptors(), 0)
    refusals = max(min(REFUSALS, free // 8), 1)
    room = free - refusals - min(FILES, free // 3)
    return max(min(max_connections, room), 1), refusals


def _open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


class SpareDescriptor:
    """A reserved descriptor, released to accept and refuse a connection when no other is left.

    Without it, clients would wait in the listener's queue without a response.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self.reserve()

    def release(self) -> None:
        """Close the descriptor, so that the next one opened can take its place."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def reserve(self) -> None:
        if self._descriptor is None:
            try:
                self._descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._descriptor = None


PROBE_PATHS = ("/health", "/livez", "/readyz")
"""Paths of health probes, which arrive every few seconds and are logged at debug."""


class ServerLog(Logger):
    """Hypercorn's logger on top of structlog."""

    def __init__(self, config: Config) -> None:
        # The base class would open its own handlers.
        self.access_logger, self.error_logger = None, log

    async def access(self, request: WWWScope, response: ResponseSummary | None, request_time: float) -> None:
        """Log a request that was answered, or whose client disconnected first (then `response` is None).

        Some clients disconnect as soon as they have the end, before the protocol knows that it was sent.
        """
        state, client = request["state"], request.get("client")
        was_answered = response is not None or state.get(ANSWERED)
        fields = {
            "method": request.get("method"),
            "path": request["path"],
            "status": None if response is None else int(response["status"]),
            "ms": round(request_time * 1000, 1),
            "request_id": state.get("request_id"),
            **log_fields_of(state),
        }
        if client and fields["status"] in OF_STRANGERS:
            fields["address"] = client[0]
        write = log.warning if (fields["status"] or 0) >= 500 else log.info
        write = log.debug if request["path"] in PROBE_PATHS else write
        write("request answered" if was_answered else "client disconnected", **fields)
