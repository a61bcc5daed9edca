"""The way back from an actor to whoever asked: a stream of events that never blocks its sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio

from greenroom.actors.core.reply_buffer import ReplyBuffer
from greenroom.schemas.events import Failed
from greenroom.schemas.problems import Problem

E = TypeVar("E")


class Grant(ABC):
    """An event that hands something over; it is closed if nobody receives it."""

    @abstractmethod
    def close(self) -> None:
        """Release what was handed over."""


class Reply:
    """The sending end, held by actors. Used from the Trio thread only; `closed` may be read from any."""

    def __init__(self) -> None:
        self._pending = ReplyBuffer()
        self._receivers = trio.lowlevel.ParkingLot()
        self._watchers: list[Callable[[], None]] = []
        self.closed = False
        self.ended = False

    def send(self, event: Any) -> bool:
        """Hand an event over without waiting.

        Returns:
            Whether there is still somebody to take it; if not, a grant has been closed.
        """
        if self.closed or self.ended:
            if isinstance(event, Grant):
                event.close()
            return False
        self._pending.add(event)
        self._receivers.unpark_all()
        return True

    def end(self) -> None:
        """Send no more events: the receiver sees `trio.EndOfChannel` after those it has not taken yet."""
        if not self.ended:
            self.ended = True
            self._notify()

    def fail(self, problem: Problem) -> None:
        """Send Failed and end."""
        self.send(Failed(problem))
        self.end()

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` (which must not block or raise) once when the reply ends or its receiver closes."""
        if self.closed or self.ended:
            on_end()
        else:
            self._watchers.append(on_end)

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for on_end in watchers:
            on_end()
        self._receivers.unpark_all()


class ReplyStream(Generic[E]):
    """The receiving end, held by the one who asked.

    Closing it is synchronous, tells every actor that watches it, and closes the grants that were not
    taken: so a grant is either returned by `receive` or given back, whenever the receiver is cancelled.
    """

    def __init__(self) -> None:
        self.sender = Reply()

    async def receive(self) -> E:
        """Return the next event. May be cancelled and called again: no event is lost.

        Raises:
            trio.EndOfChannel: There are no more.
            trio.ClosedResourceError: `close` was called.
        """
        sender = self.sender
        await trio.lowlevel.checkpoint_if_cancelled()
        while not sender._pending:
            if sender.closed:
                raise trio.ClosedResourceError
            if sender.ended:
                raise trio.EndOfChannel
            await sender._receivers.park()
        event: E = sender._pending.pop()
        return event

    def receive_nowait(self) -> E:
        """Return the next event, if it is there already.

        Raises:
            trio.WouldBlock: It is not, or there are no more.
        """
        if not self.sender._pending:
            raise trio.WouldBlock
        event: E = self.sender._pending.pop()
        return event

    def close(self) -> None:
        """Take no more events."""
        sender = self.sender
        if sender.closed:
            return
        sender.closed = True
        for event in sender._pending.drain():
            if isinstance(event, Grant):
                event.close()
        sender._notify()

    def __enter__(self) -> ReplyStream[E]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> ReplyStream[E]:
        return self

    async def __anext__(self) -> E:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
