"""Replies of actors: streams of events that never block their sender."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

import attrs
import trio

from greenroom.schemas.events.events import (
    Failed,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)
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
        """Return the next event. It may be cancelled and called again without losing an event. Raises
        trio.EndOfChannel: no events are left. Raises trio.ClosedResourceError: `close` was called.
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
        """Return the next event, if one is available. Raises trio.WouldBlock: no event is available, or none
        are left.
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


_LATEST = (QueueStatus, PromptProgress)
_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


@attrs.define(eq=False)
class _Item:
    event: Any
    pieces: list[str]
    logprobs: list[TokenLogprob] = attrs.field(factory=list)

    def accepts(self, event: TextDelta | ReasoningDelta | ToolCallDelta) -> bool:
        if isinstance(event, ToolCallDelta):
            same = isinstance(self.event, ToolCallDelta) and self.event.call == event.call
            return same and event.id is None
        return type(self.event) is type(event)

    def add(self, event: TextDelta | ReasoningDelta | ToolCallDelta) -> None:
        self.pieces.append(event.arguments if isinstance(event, ToolCallDelta) else event.text)
        if isinstance(event, TextDelta):
            self.logprobs += event.logprobs

    def result(self) -> Any:
        if not self.pieces:
            return self.event
        if isinstance(self.event, ToolCallDelta):
            return attrs.evolve(self.event, arguments=self.event.arguments + "".join(self.pieces))
        text = self.event.text + "".join(self.pieces)
        if self.logprobs:
            return attrs.evolve(self.event, text=text, logprobs=(*self.event.logprobs, *self.logprobs))
        return attrs.evolve(self.event, text=text)


class ReplyBuffer:
    """Events in order that wait for their receiver.

    A delta is merged into the last delta of the same choice if no other event of that choice follows it. A
    newer QueueStatus or PromptProgress replaces an older one. A slow receiver therefore costs no more memory
    than the text of its answer.
    """

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, event: Any) -> None:
        """Add an event: append it, merge it into an earlier one, or replace an earlier one."""
        if self._items:
            if isinstance(event, _LATEST):
                for item in self._items:
                    if type(item.event) is type(event):
                        item.event = event
                        return
            elif isinstance(event, _DELTAS):
                last = self._last_of_choice(event.index)
                if last is not None and last.accepts(event):
                    last.add(event)
                    return
        self._items.append(_Item(event, []))

    def pop(self) -> Any:
        return self._items.popleft().result()

    def drain(self) -> Iterator[Any]:
        """Remove and yield all events, oldest first."""
        while self._items:
            yield self.pop()

    def _last_of_choice(self, index: int) -> _Item | None:
        for item in reversed(self._items):
            if getattr(item.event, "index", None) == index:
                return item
        return None


MOST_UNREAD = 1_000  # News that a slow reader may leave unread

_SHUT_OUT = Problem(503, "too_slow", "The events came faster than they were read. Follow them anew.")


class Watchers:
    """The replies to all readers that follow an actor."""

    def __init__(self) -> None:
        self._replies: list[Reply] = []

    @property
    def present(self) -> bool:
        """True if a reader is left; readers that have closed their streams are removed."""
        self._replies = [reply for reply in self._replies if not (reply.closed or reply.ended)]
        return bool(self._replies)

    def add(self, reply: Reply) -> None:
        self._replies.append(reply)

    def tell(self, news: Any) -> None:
        """Send news to all readers; the stream of a reader that is too slow ends."""
        for reply in self._replies:
            if reply.unread < MOST_UNREAD:
                reply.send(news)
            else:
                reply.fail(_SHUT_OUT)

    def end(self, problem: Problem) -> None:
        replies, self._replies = self._replies, []
        for reply in replies:
            reply.fail(problem)
