"""Models for programs under asyncio: the system runs under Trio on a thread of its own (notes/embed.md).

    async with AsyncioBridge(Settings(models=("org/name",))) as bridge:
        print(await bridge.run(chat, "Why is the sky blue?"))

`bridge` is also an ASGI application, which FastAPI and Starlette mount: `app.mount("/llm", bridge)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import math
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import trio

from greenroom.actors.conversation import ConversationOptions, chat_input, converse, generate
from greenroom.actors.engines.engines import Engines
from greenroom.actors.requests.generation import RequestEvents
from greenroom.actors.system import System, open_system
from greenroom.http.app import create_app
from greenroom.http.asgi import NOT_OPEN, refuse, warn_of_server
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.generation import Parameters
from greenroom.schemas.messages.messages import Message
from greenroom.schemas.messages.requests import RequestInput
from greenroom.schemas.problems import ProblemError, draining
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from quart_trio import QuartTrio
    from sqlite_utils import Database

T = TypeVar("T")
P = ParamSpec("P")
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

AHEAD_BYTES = 64 * 1024
"""Bytes of an answer that wait for asyncio before its maker waits."""
_EVENTS_BYTES = 16 * 1024
"""Bytes that a batch of events counts as; the model's later events are merged meanwhile."""
_JOIN_SECONDS = 5.0
_THREAD = "greenroom bridge"

log = get_logger(actor="system")


class AsyncioBridge:
    """A system on a Trio thread of its own, for one asyncio loop; as an ASGI application it may be mounted.

    Enter it in the lifespan of the program around it. It changes neither signals nor logging nor executors.

    Args:
        settings: Settings of the system, and of requests over HTTP.
        protocols: See `create_app`; likewise `prefix`.
        database: See `open_system`; likewise `engines`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        protocols: Sequence[str] | None = None,
        prefix: str = "",
        database: Database | sqlite3.Connection | None = None,
        engines: Engines | None = None,
    ) -> None:
        self._settings = settings
        self._open = partial(open_system, settings, database=database, engines=engines)
        self._mount = partial(create_app, protocols=protocols, prefix=prefix)
        self._trio: _TrioSide | None = None
        self._thread: threading.Thread | None = None

    async def __aenter__(self) -> Self:
        """Open the system.

        Raises:
            ValueError: A setting cannot be used; see `open_system`.
            RuntimeError: It is open already.
        """
        if self._thread is not None and self._thread.is_alive():
            raise RuntimeError("the bridge is open already, or closes still")
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[BaseException | None] = loop.create_future()
        opened: asyncio.Future[_TrioSide] = loop.create_future()
        self._thread = threading.Thread(target=self._run, args=(loop, opened), name=_THREAD, daemon=True)
        self._thread.start()
        try:
            await asyncio.wait((opened, self._ended), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            opened.add_done_callback(lambda side: side.result().stop())
            with contextlib.suppress(Exception):
                await self._join()
            raise
        if not opened.done():
            await self._join()
        self._trio = opened.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let accepted requests end within `shutdown_timeout`, and close the system."""
        if self._trio is not None:
            self._trio.stop()
            self._trio = None
        await self._join()

    async def _join(self) -> None:
        failure = await asyncio.shield(self._ended)
        assert self._thread is not None
        self._thread.join(_JOIN_SECONDS)  # it has nothing left to do
        self._thread = None
        if failure is not None:
            raise failure

    def _run(self, loop: asyncio.AbstractEventLoop, opened: asyncio.Future[_TrioSide]) -> None:
        failure: BaseException | None = None
        try:
            trio.run(self._serve, loop, opened)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_resolve, self._ended, failure)

    async def _serve(self, loop: asyncio.AbstractEventLoop, opened: asyncio.Future[_TrioSide]) -> None:
        async with self._open() as system:
            app = self._mount(system, self._settings)
            async with trio.open_nursery() as nursery:
                side = _TrioSide(system, app, nursery)
                warn_of_server(self._settings)
                loop.call_soon_threadsafe(_resolve, opened, side)
                await side.stopping.wait()
                await system.drain()
                nursery.cancel_scope.cancel("the bridge closes")

    def chat(
        self, conversation: str | Sequence[Message], *, model: str = "default", **values: Unpack[Parameters]
    ) -> BridgedEvents:
        """Return the events of the answer to a question or a conversation; see `generate`.

        `run(chat, …)` returns its text, or raises what `Failed` holds.
        """
        return self.generate(chat_input(conversation), model=model, **values)

    def generate(
        self, asked: RequestInput, *, model: str = "default", **values: Unpack[Parameters]
    ) -> BridgedEvents:
        """Return the events of a request to a model of any kind; the request ends with their iteration.

        It begins at once, and ends early when the iterator is closed or dropped, as by a loop that is left
        or cancelled. A timeout of one `anext` loses nothing.

        Args:
            model: A hub id, the name of a folder, or an alias; `default` is the first model of the settings.
            values: Generation parameters.

        Raises:
            ProblemError: The bridge is closed. All else is the last event, `Failed`: a wrong parameter, a
                full queue (`queue_full`), a bridge that closes (`draining`).
        """
        return self._begin(lambda system: generate(system, asked, model=model, **values))

    def converse(
        self, messages: str | Sequence[Message], options: ConversationOptions | None = None
    ) -> BridgedEvents:
        """Return the events of a conversation with tools; coroutine functions among them run under Trio."""
        return self._begin(lambda system: converse(system, messages, options))

    def _begin(self, begin: Callable[[System], RequestEvents]) -> BridgedEvents:
        crossing: _Crossing[list[InferenceEvent]] = _Crossing(asyncio.get_running_loop())
        self._side.begin(crossing, lambda side: _pass_events(begin(side.system), crossing))
        return BridgedEvents(crossing)

    async def run(
        self, function: Callable[Concatenate[System, P], Awaitable[T]], /, *args: P.args, **values: P.kwargs
    ) -> T:
        """Return the result of a function that is awaited under Trio, such as `run_conversation`.

        Raises:
            ProblemError: The bridge is closed.
            Exception: Whatever the function raises.
        """
        crossing: _Crossing[T] = _Crossing(asyncio.get_running_loop())

        async def called(side: _TrioSide) -> None:
            await crossing.send(await function(side.system, *args, **values), 0)

        self._side.begin(crossing, called)
        try:
            [result] = await crossing.take()
            return result
        finally:
            crossing.cancel()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer as an ASGI application: a request, or the lifespan of a server that runs nothing else."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1012})
        elif self._trio is None or self._ended.done():
            await refuse(send, NOT_OPEN)
        else:
            await self._answer(self._trio, scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.__aenter__()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, side: _TrioSide, scope: Any, receive: Receive, send: Send) -> None:
        crossing: _Crossing[Any] = _Crossing(asyncio.get_running_loop())
        request = _Body(side.token)
        side.begin(crossing, lambda side: side.answer({**scope, "state": {}}, request.receive, crossing))
        reading = asyncio.create_task(request.feed(receive))
        begun, problem = False, draining()
        try:
            while messages := await crossing.take():
                begun = True
                for message in messages:
                    await send(message)
        except ProblemError as error:
            problem = error.problem
        finally:
            reading.cancel()
            crossing.cancel()
        if not begun:
            await refuse(send, problem)

    @property
    def _side(self) -> _TrioSide:
        if self._trio is None:
            raise ProblemError(NOT_OPEN)
        return self._trio


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


class _TrioSide:
    """The bridge as its Trio thread has it: the system, and a task for each crossing."""

    def __init__(self, system: System, app: QuartTrio, nursery: trio.Nursery) -> None:
        self.system = system
        self.token = trio.lowlevel.current_trio_token()
        self.stopping = trio.Event()
        self._process = os.getpid()
        self._app, self._nursery = app, nursery

    def stop(self) -> None:
        """Close the system, from any thread."""
        with contextlib.suppress(trio.RunFinishedError):
            self.token.run_sync_soon(self.stopping.set)

    def begin(self, crossing: _Crossing[Any], run: Callable[[_TrioSide], Awaitable[None]]) -> None:
        """Run a task whose messages cross, from asyncio's thread, in the context of the caller."""
        crossing.token = self.token
        context = contextvars.copy_context()
        try:
            if os.getpid() != self._process:
                raise trio.RunFinishedError  # a fork has no other threads
            self.token.run_sync_soon(context.run, self._start, crossing, run)
        except trio.RunFinishedError:
            crossing.end(ProblemError(NOT_OPEN))

    def _start(self, crossing: _Crossing[Any], run: Callable[[_TrioSide], Awaitable[None]]) -> None:
        try:
            self._nursery.start_soon(self._run, crossing, run)
        except RuntimeError:  # the nursery is closed
            crossing.end(ProblemError(draining()))

    async def _run(self, crossing: _Crossing[Any], run: Callable[[_TrioSide], Awaitable[None]]) -> None:
        failure: Exception | None = None
        try:
            with crossing.scope:
                await run(self)
        except Exception as error:
            failure = error
        except BaseException:
            failure = ProblemError(draining())
            raise
        finally:
            crossing.end(failure)

    async def answer(self, scope: Any, receive: Receive, crossing: _Crossing[Any]) -> None:
        """Answer a request over HTTP; a failure after the head cuts the answer off."""

        async def send(message: Any) -> None:
            await crossing.send(message, len(message.get("body", b"")))

        await self._app(scope, receive, send)


async def _pass_events(events: RequestEvents, crossing: _Crossing[list[InferenceEvent]]) -> None:
    with events:
        async for event in events:
            await crossing.send([event, *events.receive_ready()], _EVENTS_BYTES)


class _Crossing(Generic[T]):
    """Messages of a Trio task to an asyncio task, in order, and a bounded number of bytes ahead.

    There are no locks: each figure is written by one thread, and read by the other after the messages.

    Attributes:
        token: Token of the Trio thread, set when the task begins.
        scope: Scope of the task.
    """

    token: trio.lowlevel.TrioToken

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.scope = trio.CancelScope()
        self._loop = loop
        self._messages: deque[tuple[T, int]] = deque()
        self._sent = self._taken = 0
        self._room: trio.Event | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._is_woken = self._ended = False
        self._failure: Exception | None = None

    async def send(self, message: T, size: int) -> None:
        """Send a message, and wait while too much is ahead of asyncio."""
        self._messages.append((message, size))
        self._sent += size
        self._wake()
        while self._sent - self._taken > AHEAD_BYTES:
            self._room = trio.Event()
            if self._sent - self._taken <= AHEAD_BYTES:
                break
            await self._room.wait()
        self._room = None
        await trio.lowlevel.checkpoint()

    def end(self, failure: Exception | None) -> None:
        """End the messages, on the Trio thread."""
        self._failure, self._ended = failure, True
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._note)
            except RuntimeError:  # the loop is closed
                self.scope.cancel("nobody reads")

    def _note(self) -> None:
        if self._arrived is not None:
            _resolve(self._arrived, None)

    async def take(self) -> list[T]:
        """Return the messages that have come, at least one; none after the last.

        Raises:
            Exception: The failure of the Trio task.
        """
        if self._arrived is not None:
            raise RuntimeError("another task waits for these events")
        while True:
            self._is_woken = False  # before the look: what comes after it wakes again
            ended = self._ended
            taken = []
            while self._messages:
                message, size = self._messages.popleft()
                self._taken += size
                taken.append(message)
            if taken:
                if self._room is not None:
                    self._in_trio(self._make_room)
                return taken
            if ended:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                return []
            self._arrived = self._loop.create_future()
            try:
                if not self._is_woken:
                    await self._arrived
            finally:
                self._arrived = None

    def cancel(self) -> None:
        """End the Trio task, from any thread."""
        if not self._ended:
            self._in_trio(partial(self.scope.cancel, "asyncio does not wait"))

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()

    def _in_trio(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self.token.run_sync_soon(call)


class _Body:
    """The messages of a client to the application, each of which is read when the application wants it."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._sender, self._receiver = trio.open_memory_channel[Any](math.inf)

    async def receive(self) -> Any:
        """Return the next message, under Trio."""
        with contextlib.suppress(RuntimeError):  # the loop is closed; the task is cancelled soon
            self._loop.call_soon_threadsafe(self._wanted.set)
        return await self._receiver.receive()

    async def feed(self, receive: Receive) -> None:
        """Pass on messages, under asyncio, until the client is gone."""
        message: Any = None
        while message is None or message["type"] != "http.disconnect":
            await self._wanted.wait()
            self._wanted.clear()
            try:
                message = await receive()
            except Exception:  # of what the program has around it
                message = {"type": "http.disconnect"}
                log.exception("request crashed")
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._sender.send_nowait, message)


class BridgedEvents:
    """The events of a request, for one asyncio task; leave its context, or drop it, to end it early."""

    def __init__(self, crossing: _Crossing[list[InferenceEvent]]) -> None:
        self._crossing = crossing
        self._events: deque[InferenceEvent] = deque()
        self._last: InferenceEvent | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> InferenceEvent:
        if not self._events:
            try:
                for batch in await self._crossing.take():
                    self._events += batch
            except ProblemError as refused:
                if not isinstance(self._last, Finished | Failed):
                    self._events.append(Failed(refused.problem))
            except asyncio.CancelledError:
                del self  # the traceback keeps this frame, and must not keep the request
                raise
        if not self._events:
            raise StopAsyncIteration
        self._last = self._events.popleft()
        return self._last

    def close(self) -> None:
        """End the request; its model stops at the next step."""
        self._crossing.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._crossing.cancel()
