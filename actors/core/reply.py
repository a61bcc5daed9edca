"""Replies of actors: streams of events that never block their sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

import trio

from greenroom.actors.core.reply_buffer import ReplyBuffer
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem

E = TypeVar("E")


class Grant(ABC):
    """An event that transfers a resource; it is closed if nobody receives it."""

    @abstractmethod
    def close(self) -> None:
        """Release the transferred resource."""


class Reply:
    """The sending end of a reply, for the Trio thread only; any thread may read `closed`.

    Attributes:
        problem: Problem with which it was failed; None if it was not.
    """

    def __init__(self) -> None:
        self._pending = ReplyBuffer()
        self._receivers = trio.lowlevel.ParkingLot()
        self._watchers: list[Callable[[], None]] = []
        self.closed = False
        self.ended = False
        self.problem: Problem | None = None

    def send(self, event: Any) -> bool:
        """Send an event without waiting.

        Returns:
            Whether a receiver is left; if not, a grant has been closed.
        """
        if self.closed or self.ended:
            if isinstance(event, Grant):
                event.close()
            return False
        self._pending.add(event)
        self._receivers.unpark_all()
        return True

    def end(self) -> None:
        """End the reply: the receiver gets `trio.EndOfChannel` after the remaining events."""
        if not self.ended:
            self.ended = True
            self._notify()

    def fail(self, problem: Problem) -> None:
        """Send Failed and end the reply."""
        if not (self.closed or self.ended):
            self.problem = problem
        self.send(Failed(problem))
        self.end()

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call `on_end` once when the reply ends or its receiver closes; it must not block or raise."""
        if self.closed or self.ended:
            on_end()
        else:
            self._watchers.append(on_end)

    @property
    def unread(self) -> int:
        """Number of events that wait for their receiver."""
        return len(self._pending)

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, []
        for on_end in watchers:
            on_end()
        self._receivers.unpark_all()


class ReplyStream(Generic[E]):
    """The receiving end of a reply, held by the sender of the message.

    Closing it is synchronous, notifies every actor that watches it, and closes the grants that were not
    received. A grant is thus either returned by `receive` or closed, whenever the receiver is cancelled.
    """

    def __init__(self) -> None:
        self.sender = Reply()

    async def receive(self) -> E:
        """Return the next event. It may be cancelled and called again without losing an event.

        Raises:
            trio.EndOfChannel: No events are left.
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
        """Return the next event, if one is available.

        Raises:
            trio.WouldBlock: No event is available, or none are left.
        """
        if not self.sender._pending:
            raise trio.WouldBlock
        event: E = self.sender._pending.pop()
        return event

    def close(self) -> None:
        """Stop receiving, and close the grants that were not received."""
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
