"""Heartbeats of a stream while there are no events, on a clock that jumps."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import trio
import trio.testing

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.requests.generation import RequestEvents
from greenroom.http.answering.event_stream import (
    HEARTBEAT,
    NEWS_INTERVAL,
    EventStream,
    ParallelEventStream,
    ParallelGenerations,
)
from greenroom.http.openai.chat_formatter import ChatStream
from greenroom.http.openai.completions import CompletionStream
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    TextDelta,
    Usage,
)
from greenroom.schemas.messages.requests import InferenceRequest, RawInput
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import model_crashed


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


async def news_of(*events: tuple[float, InferenceEvent], early: tuple[InferenceEvent, ...] = ()) -> Any:
    """Return the statuses and progress of a stream, with the seconds of their arrival.

    Args:
        events: Events with the seconds of the wait before them.
        early: Events that came before the headers were sent.
    """
    reply = ReplyStream[InferenceEvent]()
    formatter = ChatStream("chatcmpl-1", "m", 123, with_status=True)
    received: list[tuple[float, Any]] = []

    async def send() -> None:
        for seconds, event in events:
            await trio.sleep(seconds)
            reply.sender.send(event)
        reply.sender.send(Finished("stop", Usage(1, 1)))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        async for piece in EventStream(Events(reply), formatter, early):
            for chunk in piece.removesuffix(b"data: [DONE]\n\n").split(b"\n\n")[:-1]:
                members = json.loads(chunk.removeprefix(b"data: "))
                told = members.get("queue_status", members.get("prompt_progress"))
                if told is not None:
                    received.append(
                        (trio.current_time() - began, told.get("position", told.get("processed")))
                    )
    return received


async def test_news_are_told_soon_but_not_more_often_than_clients_need(
    autojump_clock: trio.testing.MockClock,
) -> None:
    waits = [QueueStatus("queued", position, "m") for position in range(9)]
    told = await news_of(
        *((0.3, status) for status in reversed(waits)), (0.1, PromptProgress(5, 7)), (4.0, TextDelta("a"))
    )
    assert told == [(0.3, 8), (0.3 + NEWS_INTERVAL, 2), (0.3 + 2 * NEWS_INTERVAL, 5)]
    # What is still true is repeated by heartbeats.
    told = await news_of((0.5, waits[3]), (25.0, TextDelta("a")))
    assert told == [(0.5, 3), (0.5 + HEARTBEAT, 3), (0.5 + 2 * HEARTBEAT, 3)]


async def test_news_that_came_before_the_headers_are_told_if_they_are_still_true(
    autojump_clock: trio.testing.MockClock,
) -> None:
    loading = QueueStatus("loading", 3, "m")
    assert await news_of((60.0, Finished("stop", Usage(1, 1))), early=()) == []
    assert await news_of((5.0, TextDelta("a")), early=(loading, Admitted(3))) == [(0.0, 3)]
    assert await news_of((5.0, TextDelta("b")), early=(loading, Admitted(3), TextDelta("a"))) == []


class Prompt(RequestEvents):
    """One of several prompts, whose events a test sends."""

    def __init__(self) -> None:
        self.request = InferenceRequest("req_1", ModelKey("m"), RawInput("a"))
        self.reply = ReplyStream[InferenceEvent]()

    async def receive(self) -> InferenceEvent:
        return await self.reply.receive()

    def receive_ready(self) -> list[InferenceEvent]:
        return []

    def close(self) -> None:
        self.reply.close()


async def test_nothing_follows_the_failure_of_one_of_several_prompts() -> None:
    failing, other = Prompt(), Prompt()
    stream = ParallelEventStream(
        ParallelGenerations([failing, other]), CompletionStream("i", "m", 1, choices=2)
    )
    sent = b""
    async with stream:
        for prompt, event in ((failing, Failed(model_crashed("m"))), (other, TextDelta("late"))):
            prompt.reply.sender.send(event)
            await trio.testing.wait_all_tasks_blocked()
        async for piece in stream:
            sent += piece
    assert sent.startswith(b'data: {"error":')
    assert sent.endswith(b"data: [DONE]\n\n")
    assert b"late" not in sent
