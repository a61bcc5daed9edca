"""The attacking client: carries out steps and records the server's answers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs
import trio

from greenroom.tests.attack.client.locked_store import hold_lock
from greenroom.tests.attack.client.stored_items import read_nothing, reference_request
from greenroom.tests.attack.client.web_sockets import converse, do_harm
from greenroom.tests.attack.client.wire import as_bytes, head, post
from greenroom.tests.attack.requests.sockets import HARMS
from greenroom.tests.attack.requests.steps import (
    Abandoned,
    Attack,
    Call,
    Ending,
    FormCall,
    HangUp,
    HarmfulSockets,
    LockedStore,
    Phase,
    RawBytes,
    References,
    SilentReaders,
    SlowReaders,
    SocketMessage,
    Suspension,
)

ANSWER_TIMEOUT = 60.0
"""Seconds without any answer to an attack's requests after which a waiting one counts as unanswered."""
STALL_TIMEOUT = 30.0
"""Seconds without a byte on any stream after which a stream that has begun counts as stuck."""
LINGER = 2.0
"""Seconds that a client waits for an answer to malformed bytes."""

_HUNG_UP = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)

_STREAM = {"stream": True, "temperature": 0, "messages": [{"role": "user", "content": "Go on"}]}


@attrs.frozen
class Exchange:
    """The result of one request.

    Args:
        step: Description of the request.
        status: HTTP status; None if the connection ended without one.
        body: First and last bytes of the answer.
        timed_out: True if it got no answer within `ANSWER_TIMEOUT` of the last one, and does not progress.
        refused: True if the server must refuse the request with a 4xx.
    """

    step: str
    status: int | None
    body: bytes = b""
    timed_out: bool = False
    refused: bool = False


@attrs.define
class Attacker:
    """A client that attacks one server.

    Args:
        port: Port of the server on 127.0.0.1.
        process: Process id of the server, for signals.
        models: Names of models; the last cannot be loaded while the others are in use.
    """

    port: int
    process: int
    models: tuple[str, ...]
    exchanges: list[Exchange] = attrs.field(factory=list)
    last_byte: float = 0.0
    """Time of the last byte received on any stream, by `trio.current_time`."""
    _waiting: set[trio.CancelScope] = attrs.field(factory=set, init=False)

    async def carry_out(self, attack: Attack) -> None:
        """Carry out all steps, and wait for their end."""
        async with trio.open_nursery() as nursery:
            for step in attack.steps:
                if attack.at_once:
                    nursery.start_soon(self._step, step)
                else:
                    await self._step(step)

    async def _step(self, step: Any) -> None:
        match step:
            case Call() | FormCall():
                await self._at_once(step.copies, self._call, step, as_bytes(step))
            case HangUp():
                await self._at_once(step.copies, self._hang_up, step.phase, step.ending)
            case Abandoned(call, after, ending, copies):
                await self._at_once(copies, _abandon, as_bytes(call), after, ending)
            case RawBytes():
                await self._at_once(step.copies, self._send_raw, step)
            case SlowReaders():
                await self._at_once(step.copies, self._read_slowly)
            case SilentReaders():
                with contextlib.suppress(*_HUNG_UP):
                    await read_nothing(self.port, step.megabytes, step.copies)
            case LockedStore(seconds, copies):
                body = {"model": self.models[0], "input": "a", "max_output_tokens": 4}
                stored = Call("/v1/responses", body, copies)
                async with trio.open_nursery() as nursery:
                    await nursery.start(hold_lock, self.process, seconds)
                    await self._step(stored)
            case HarmfulSockets():
                await self._at_once(step.copies, self._do_harm, step)
            case SocketMessage():
                await self._at_once(step.copies, self._converse, step)
            case References():
                await self._at_once(step.copies, self._refer, step)
            case Suspension():
                os.kill(self.process, signal.SIGSTOP)
                try:
                    await trio.sleep(step.seconds)
                finally:
                    os.kill(self.process, signal.SIGCONT)

    async def _at_once(self, copies: int, do: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(copies):
                nursery.start_soon(self._connected, do, *arguments)

    async def _connected(self, do: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            async with stream:
                await do(stream, *arguments)
        except _HUNG_UP:
            pass  # a server may close the connection of such a client

    async def _refer(self, stream: trio.SocketStream, step: References) -> None:
        request = await reference_request(self.port, self.models[0], step.mentions)
        await self._call(stream, step, [request])

    async def _do_harm(self, stream: trio.SocketStream, step: HarmfulSockets) -> None:
        harm = HARMS[step.harm]
        received = await do_harm(stream, harm, self.models[0])
        exchange = _exchange(step, received, timed_out=False)
        self.exchanges.append(attrs.evolve(exchange, refused=harm.refused))

    async def _converse(self, stream: trio.SocketStream, step: SocketMessage) -> None:
        received = b""
        with trio.move_on_after(ANSWER_TIMEOUT) as waiting:
            received = await converse(stream, step)
        self.exchanges.append(_exchange(step, received, waiting.cancelled_caught))

    async def _call(
        self, stream: trio.SocketStream, step: Call | FormCall | References, data: Iterable[bytes]
    ) -> None:
        received = bytearray()
        with trio.move_on_after(ANSWER_TIMEOUT) as waiting:
            self._waiting.add(waiting)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send_what_is_taken, stream, data)
                await self._read_into(received, stream)
                nursery.cancel_scope.cancel()
        self._waiting.remove(waiting)
        goes_on = bool(received) and trio.current_time() - self.last_byte < STALL_TIMEOUT
        if goes_on or not waiting.cancelled_caught:
            for other in self._waiting:  # other requests may wait longer while the queue moves
                other.deadline = trio.current_time() + ANSWER_TIMEOUT
        timed_out = waiting.cancelled_caught and not goes_on and getattr(step, "is_bounded", True)
        self.exchanges.append(_exchange(step, bytes(received), timed_out))

    async def _read_into(self, received: bytearray, stream: trio.SocketStream) -> None:
        try:
            async for data in stream:
                self.last_byte = trio.current_time()
                received += data
                if len(received) > 100_000:  # only the beginning and the end are examined
                    del received[50_000:-50_000]
        except trio.BrokenResourceError:
            pass

    async def reach(self, stream: trio.SocketStream, phase: Phase) -> None:
        """Bring a request on the connection to a phase."""
        match phase:
            case Phase.CONNECTED:
                return
            case Phase.HEAD:
                await stream.send_all(head(1_000)[:60])
            case Phase.BODY:
                await stream.send_all(head(1_000_000) + b'{"model":' + b" " * 100_000)
            case Phase.CHUNKED_BODY:
                await stream.send_all(head(None) + b'400\r\n{"model":')
            case Phase.WAITING:
                await stream.send_all(post({**_STREAM, "model": self.models[-1], "max_tokens": 50}))
            case Phase.PREFILL:
                long = [{"role": "user", "content": "word " * 3_000}]
                await stream.send_all(
                    post({**_STREAM, "model": self.models[0], "messages": long, "max_tokens": 20})
                )
            case Phase.DECODE | Phase.PIPELINED:
                request = post({**_STREAM, "model": self.models[0], "max_tokens": 200})
                await stream.send_all(request * (2 if phase is Phase.PIPELINED else 1))
                await _read_until(stream, b"data: ")
            case Phase.BETWEEN:
                await stream.send_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                await _read_until(stream, b"}")

    async def hold(self, phase: Phase, reached: Callable[[], object]) -> None:
        """Bring a request to a phase, then read until the server closes the connection."""

        async def do(stream: trio.SocketStream) -> None:
            try:
                await self.reach(stream, phase)
            finally:
                reached()
            async for _ in stream:
                self.last_byte = trio.current_time()

        await self._connected(do)

    async def _hang_up(self, stream: trio.SocketStream, phase: Phase, ending: Ending) -> None:
        with trio.move_on_after(ANSWER_TIMEOUT) as waiting:
            await self.reach(stream, phase)
        if waiting.cancelled_caught:
            self.exchanges.append(Exchange(f"request {phase.value}", None, timed_out=True))
        await _leave(stream, ending)

    async def _send_raw(self, stream: trio.SocketStream, step: RawBytes) -> None:
        for piece in step.pieces:
            await stream.send_all(piece.whole())
        received = bytearray()
        with trio.move_on_after(LINGER):
            await self._read_into(received, stream)
        if received:
            self.exchanges.append(_exchange(step, bytes(received), timed_out=False))
        await _leave(stream, step.ending)

    async def _read_slowly(self, stream: trio.SocketStream) -> None:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        await stream.send_all(post({**_STREAM, "model": self.models[0], "max_tokens": 2_000}))
        await trio.sleep(LINGER)


async def _send_what_is_taken(stream: trio.SocketStream, data: Iterable[bytes]) -> None:
    # The server may refuse the request before reading all of it. The answer has the reason.
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        for piece in data:
            await stream.send_all(piece)


async def _abandon(stream: trio.SocketStream, data: Iterable[bytes], after: float, ending: Ending) -> None:
    with trio.move_on_after(after):
        await _send_what_is_taken(stream, data)
        await trio.sleep(after)
    await _leave(stream, ending)


async def _leave(stream: trio.SocketStream, ending: Ending) -> None:
    match ending:
        case Ending.RESET:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        case Ending.HALF_CLOSE:
            await stream.send_eof()
            with trio.move_on_after(LINGER):
                async for _ in stream:
                    pass
        case Ending.CLOSE:
            pass
    await trio.aclose_forcefully(stream)


async def _read_until(stream: trio.SocketStream, mark: bytes) -> None:
    received = b""
    while mark not in received:
        data = await stream.receive_some()
        if not data:
            return
        received = received[-1_000:] + data


def _exchange(step: object, received: bytes, timed_out: bool) -> Exchange:
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    status = int(words[1]) if len(words) > 1 and words[1][:3].isdigit() else None
    return Exchange(f"{step!r:.300}", status, body, timed_out, getattr(step, "refused", False))
