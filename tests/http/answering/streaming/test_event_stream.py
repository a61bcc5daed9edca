"""Heartbeats of a stream while there are no events, on a clock that jumps."""

from __future__ import annotations

from itertools import pairwise

import trio
import trio.testing

from greenroom.actors.core.reply import ReplyStream
from greenroom.http.answering.streaming.event_stream import HEARTBEAT, EventStream
from greenroom.http.openai.chat.chat_stream import ChatStream
from greenroom.schemas.events.events import Finished, InferenceEvent, PromptProgress, TextDelta, Usage


class Events:
    """A reply with the interface that the stream expects."""

    def __init__(self, reply: ReplyStream[InferenceEvent]) -> None:
        self._reply = reply

    async def receive(self) -> InferenceEvent:
        return await self._reply.receive()

    def receive_ready(self) -> list[InferenceEvent]:
        return []


async def test_a_long_prefill_that_reports_progress_is_not_silence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply = ReplyStream[InferenceEvent]()
    formatter = ChatStream("chatcmpl-1", "m", 123)
    received: list[tuple[float, bytes]] = []

    async def prefill() -> None:
        for second in range(35):
            await trio.sleep(1)
            reply.sender.send(PromptProgress(second, 35))
        reply.sender.send(TextDelta("hello"))
        reply.sender.send(Finished("stop", Usage(35, 1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prefill)
        async for piece in EventStream(Events(reply), formatter):
            received.append((trio.current_time(), piece))
    times = [at for at, _ in received]
    silences = [later - earlier for earlier, later in pairwise(times)]
    assert max(silences) <= HEARTBEAT
    assert [piece for _, piece in received].count(formatter.heartbeat()) == 3


class WithoutHeartbeat(ChatStream):
    """A protocol without heartbeats."""

    heartbeats = 0

    def heartbeat(self) -> bytes:
        self.heartbeats += 1
        assert self.heartbeats < 10
        return b""


async def test_a_protocol_without_a_heartbeat_waits_in_silence(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply = ReplyStream[InferenceEvent]()
    formatter = WithoutHeartbeat("chatcmpl-1", "m", 123)

    async def load() -> None:
        await trio.sleep(3.5 * HEARTBEAT)
        reply.sender.send(TextDelta("hello"))
        reply.sender.send(Finished("stop", Usage(1, 1)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(load)
        pieces = [piece async for piece in EventStream(Events(reply), formatter)]
    assert formatter.heartbeats == 3
    assert b"".join(pieces).count(b'"content":"hello"') == 1
