"""Streamed responses about work that is no generation, such as a download."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import trio
from quart import Response
from quart.wrappers.response import ResponseBody

from greenroom.actors.core.ref import ActorStopped, Ref
from greenroom.actors.core.reply import ReplyStream
from greenroom.http.answering.audit.audited_request import audited_request
from greenroom.http.answering.streaming.event_stream import HEARTBEAT
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import ProblemError, draining


class ProgressStream(ResponseBody):
    """The body of a response that sends the events of a reply, and closes the reply at its end.

    Args:
        first: Event that came before the headers were sent.
        encode: Function that returns an event's bytes; no bytes for an event that is not sent.
    """

    def __init__(self, replies: ReplyStream[Any], first: Any, encode: Callable[[Any], bytes]) -> None:
        self._replies = replies
        self._encode = encode
        self._latest = encode(first)
        self._begun = False
        self._audited = audited_request()

    async def __aenter__(self) -> ProgressStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replies.close()

    def __aiter__(self) -> ProgressStream:
        return self

    async def __anext__(self) -> bytes:
        """Return the next event; after a silence, the last one again."""
        if not self._begun:
            self._begun = True
            return self._latest
        while True:
            with trio.move_on_after(HEARTBEAT):
                try:
                    event = await self._replies.receive()
                except trio.EndOfChannel:
                    raise StopAsyncIteration from None
                if isinstance(event, Failed) and self._audited is not None:
                    self._audited.record_problem(event.problem)
                if not (encoded := self._encode(event)):
                    continue
                self._latest = encoded
            return self._latest


async def progress_response(
    ref: Ref[Any], message: Any, encode: Callable[[Any], bytes], content_type: str
) -> Response:
    """Return a response that sends the events of an actor's reply.

    Raises:
        ProblemError: The first event is a failure, or the actor has stopped.
    """
    try:
        replies = await ref.stream(message)
    except ActorStopped:
        raise ProblemError(draining()) from None
    try:
        first = await replies.receive()
        if isinstance(first, Failed):
            raise ProblemError(first.problem)
    except BaseException:
        replies.close()
        raise
    headers = {"content-type": content_type, "cache-control": "no-cache", "x-accel-buffering": "no"}
    response = Response(ProgressStream(replies, first, encode), headers=headers)
    response.timeout = None
    return response
