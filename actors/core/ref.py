"""Message passing between actors: a ref can only send, and an inbox belongs to one actor.

An actor's single task receives everything from its control channel: messages, which a child task forwards
from the inbox, and reports of children and workers, which arrive through `send` and never wait. The inbox has
capacity 0, so a sender that is cancelled before its message is received has withdrawn the message.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import attrs
import trio

from greenroom.actors.core.reply import Reply, ReplyStream
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import Problem, ProblemError, draining

M = TypeVar("M")
R = TypeVar("R")


class ActorStopped(Exception):
    """An error for messages to an actor that has stopped."""


@attrs.frozen(eq=False)
class Envelope(Generic[M]):
    """A message, with the reply that its sender waits for, if any."""

    message: M
    reply: Reply | None = None


class Ref(Generic[M]):
    """A reference to an actor, for sending messages only."""

    def __init__(self, inbox: trio.MemorySendChannel[Envelope[M]]) -> None:
        self._inbox = inbox

    async def tell(self, message: M) -> None:
        """Send a message without an answer. Raises ActorStopped: the message was not received."""
        await self._send(Envelope(message))

    async def stream(self, message: M, into: ReplyStream[Any] | None = None) -> ReplyStream[Any]:
        """Send a message and return the stream of answers, which the caller must close.

        Args:
            into: Existing stream to receive the answers, so that one receiver can wait for several actors. It
                stays open if sending fails or is cancelled.

        Raises:
            ActorStopped: The message was not received.
        """
        replies: ReplyStream[Any] = ReplyStream() if into is None else into
        await self._send(Envelope(message, replies.sender))
        return replies

    async def ask(self, message: M, answer: type[R]) -> R | Failed:
        """Send a message and return the first event of type `answer`, or Failed.

        If the caller is cancelled, an answer that transfers a resource (`Grant`) is closed.

        Raises:
            ActorStopped: The actor stopped without an answer.
        """
        with await self.stream(message) as replies:
            async for event in replies:
                if isinstance(event, (answer, Failed)):
                    return event
        raise ActorStopped(f"no answer to {type(message).__name__}")

    async def _send(self, envelope: Envelope[M]) -> None:
        try:
            await self._inbox.send(envelope)
        except trio.BrokenResourceError:
            raise ActorStopped(f"{type(envelope.message).__name__} was not received") from None


class Control(Generic[R]):
    """The channel for an actor's messages and its children's reports. Sending never waits and never fails."""

    def __init__(self) -> None:
        self._sender, self._receiver = trio.open_memory_channel[Any](math.inf)
        self._token = trio.lowlevel.current_trio_token()
        self._closed: Problem | None = None

    def send(self, report: R | Envelope[Any]) -> None:
        """Send a report from the Trio thread."""
        if self._closed is None:
            self._sender.send_nowait(report)
        else:
            _refuse(report, self._closed)

    def send_from_thread(self, report: R) -> None:
        """Send a report from a worker; it is dropped if Trio or the actor has ended."""
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.send, report)

    async def receive(self) -> R | Envelope[Any]:
        received: R | Envelope[Any] = await self._receiver.receive()
        return received

    def close(self, problem: Problem) -> None:
        """Stop receiving, and fail all messages that wait for an answer or are being forwarded."""
        self._closed = problem
        with contextlib.suppress(trio.WouldBlock):
            while True:
                _refuse(self._receiver.receive_nowait(), problem)


def _refuse(report: Any, problem: Problem) -> None:
    if isinstance(report, Envelope) and report.reply is not None:
        report.reply.fail(problem)


class Inbox(Generic[M]):
    """An actor's mailbox of capacity 0."""

    def __init__(self) -> None:
        sender, self._receiver = trio.open_memory_channel[Envelope[M]](0)
        self.ref: Ref[M] = Ref(sender)
        self._replies: WeakSet[Reply] = WeakSet()

    async def forward(self, control: Control[Any]) -> None:
        """Forward each message at once until cancelled; later senders get ActorStopped."""
        with self._receiver:
            async for envelope in self._receiver:
                if envelope.reply is not None:
                    self._replies.add(envelope.reply)
                control.send(envelope)
                del envelope  # otherwise its images stay in memory until the next message

    def fail_unanswered(self, problem: Problem) -> None:
        """Fail the messages that a task or a thread of the actor was still answering when it ended."""
        for reply in [*self._replies]:
            reply.fail(problem)


async def ask_actor(ref: Ref[M], message: M, answer_type: type[R]) -> R:
    """Return an actor's answer to a message.

    Raises:
        ProblemError: The actor answers `Failed`, or has stopped.
    """
    answer = await answer_or_failed(ref, message, answer_type)
    if isinstance(answer, Failed):
        raise ProblemError(answer.problem)
    return answer


async def answer_or_failed(ref: Ref[M], message: M, answer_type: type[R]) -> R | Failed:
    """Return an actor's answer to a message; a stopped actor counts as a server that shuts down."""
    try:
        return await ref.ask(message, answer_type)
    except ActorStopped:
        return Failed(draining())
