"""Roads to MCP servers, within limits: programs on their standard streams, and addresses.

The SDK's own road to programs reads lines of any length, and waits up to 4 s for a deaf one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpcore2
import httpx2
import trio
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from greenroom.schemas.protocols.tools_protocol import ToolSource
from greenroom.schemas.settings.tool_servers import ToolServer, pairs

MAX_MESSAGE = 8 * 1024 * 1024  # Longest message of a server, in bytes
MAX_UNASKED = 16 * 1024 * 1024  # Most bytes that a server may send without having been asked something
_UNASKED = f"it sent more than {MAX_UNASKED:,} bytes without having been asked"
_EXIT_SECONDS = 1.0
_KEPT_ERRORS = 2_000
_INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")

Streams = tuple[Any, Any]
"""The streams of messages from and to a server, as the SDK takes them."""


class Flooded(Exception):
    """An error for a server that sends more than it may."""


@asynccontextmanager
async def open_address(source: ToolSource, lost: Callable[[str], None]) -> AsyncIterator[Streams]:
    """Open the streams of a server with an address; connections go through the source's network. `lost`:
    function that is called, with the reason, once it sends too much.
    """
    context = await trio.to_thread.run_sync(httpx2.create_ssl_context)
    transport = _BoundedTransport(verify=context)
    transport.lost = lost
    if source.network is not None:
        await transport.aclose()
        transport._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=source.network)
    url, headers = source.server.url or "", pairs(source.server.headers)
    timeout = httpx2.Timeout(source.server.timeout, read=None)
    async with (
        httpx2.AsyncClient(transport=transport, headers=headers, timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """A transport whose complete answers are bounded, and the sum of all events between two questions; the
    SDK bounds each event.
    """

    lost: Callable[[str], None]
    _unasked = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            self._unasked = 0
        request.headers["accept-encoding"] = "identity"  # megabytes could become gigabytes
        response = await super().handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            count = _limit(-1, "the answer is compressed, which was not asked for")
        elif response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            count = self._count
        else:
            count = _limit(MAX_MESSAGE, f"the answer has more than {MAX_MESSAGE:,} bytes")
        response.stream = _BoundedStream(response.stream, count)
        return response

    def _count(self, size: int) -> None:
        self._unasked += size
        if self._unasked > MAX_UNASKED:
            self.lost(_UNASKED)
            raise httpx2.StreamError(_UNASKED)


def _limit(left: int, fault: str) -> Callable[[int], None]:
    """Return a function that counts the bytes of an answer, and raises an error if there are more."""

    def count(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            raise httpx2.StreamError(fault)

    return count


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, count: Callable[[int], None]) -> None:
        self._stream = stream
        self._count = count
        self._parts: Any = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._parts = aiter(self._stream)
        return self

    async def __anext__(self) -> bytes:
        part: bytes = await anext(self._parts)
        self._count(len(part))
        return part

    async def aclose(self) -> None:
        if self._parts is not None:
            # Cancel rather than break: an unfinished generator would be closed by the garbage collector.
            with trio.CancelScope() as scope, suppress(RuntimeError):
                scope.cancel("the answer is not read to its end")
                async for _ in self._parts:
                    pass
        await self._stream.aclose()


class Program:
    """A program that speaks MCP on its standard streams, with a folder and a process group of its own.

    Args:
        lost: Function that is called once when the program ends its output, with the reason.

    Attributes:
        errors: The end of what it has written to its standard error.
    """

    def __init__(self, server: ToolServer, lost: Callable[[str], None]) -> None:
        self._server = server
        self._lost = lost
        self._unasked = 0
        self._line = bytearray()
        self.errors = ""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Start the program, and kill it and its children at the end, after a second to leave. Raises
        OSError: it cannot be started.
        """
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        with tempfile.TemporaryDirectory(prefix="greenroom-mcp-", ignore_cleanup_errors=True) as folder:
            process = await trio.lowlevel.open_process(
                [self._server.command or "", *self._server.args],
                env={**environment, **pairs(self._server.env)},
                cwd=folder,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            arriving, arrived = anyio.create_memory_object_stream[Any](0)
            leaving, left = anyio.create_memory_object_stream[Any](0)
            async with arriving, arrived, leaving, left, trio.open_nursery() as nursery:
                nursery.start_soon(self._read, process, arriving)
                nursery.start_soon(self._write, process, left)
                nursery.start_soon(self._read_errors, process)
                try:
                    yield arrived, leaving
                finally:
                    with trio.CancelScope(shield=True):
                        await _end(process)
                    nursery.cancel_scope.cancel("the session ends")

    async def _read(self, process: trio.Process, into: Any) -> None:
        assert process.stdout is not None
        why = "it ended its output"
        try:
            async with into:
                while chunk := await process.stdout.receive_some(65_536):
                    for line in self._split(chunk):
                        # What is no message is somebody's `print`.
                        if line.lstrip().startswith(b"{"):
                            with suppress(ValueError):
                                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                                await into.send(SessionMessage(message))
        except Flooded as error:
            why = str(error)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the session has ended
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self._lost(why)

    def _split(self, chunk: bytes | bytearray) -> list[bytes]:
        self._unasked += len(chunk)
        self._line += chunk  # copies the chunk alone
        ended = bytes(self._line).split(b"\n") if b"\n" in chunk else []
        if ended:
            self._line = bytearray(ended.pop())
        if len(self._line) > MAX_MESSAGE:
            raise Flooded(f"it sent a message of more than {MAX_MESSAGE:,} bytes")
        if self._unasked > MAX_UNASKED:
            raise Flooded(_UNASKED)
        return ended

    async def _write(self, process: trio.Process, messages: Any) -> None:
        assert process.stdin is not None
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for message in messages:
                self._unasked = 0
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await process.stdin.send_all(text.encode() + b"\n")

    async def _read_errors(self, process: trio.Process) -> None:
        assert process.stderr is not None
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await process.stderr.receive_some(65_536):
                self.errors = (self.errors + chunk.decode("utf-8", "replace"))[-_KEPT_ERRORS:]


async def _end(process: trio.Process) -> None:
    """End a program and its children: first by the end of its input, then by force."""
    assert process.stdin is not None
    await process.stdin.aclose()
    with trio.move_on_after(_EXIT_SECONDS):
        await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            await stream.aclose()
