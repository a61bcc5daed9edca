"""Several generations as one source of events, for requests with several prompts."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import attrs
import trio

from greenroom.actors.requests.generation import Generation
from greenroom.http.answering.streaming.event_stream import EventStream, StreamFormatter
from greenroom.schemas.events.events import (
    Finished,
    InferenceEvent,
    PromptText,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)


class ParallelGenerations:
    """Runs generations concurrently while it is entered.

    Args:
        generations: Generations in the order that numbers their choices.
    """

    def __init__(self, generations: Sequence[Generation]) -> None:
        self._generations = generations
        self._nursery = trio.open_nursery()
        self._sender, self._receiver = trio.open_memory_channel[InferenceEvent](0)

    async def receive(self) -> InferenceEvent:
        """Return the next event of any generation. May be cancelled and called again.

        Raises:
            trio.EndOfChannel: All have ended.
        """
        return await self._receiver.receive()

    def receive_ready(self) -> list[InferenceEvent]:
        ready = []
        while True:
            try:
                ready.append(self._receiver.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                return ready

    async def __aenter__(self) -> ParallelGenerations:
        nursery = await self._nursery.__aenter__()
        with self._sender:
            for index, generation in enumerate(self._generations):
                nursery.start_soon(self._pull, index, generation, self._sender.clone())
        self._cancel = nursery.cancel_scope.cancel
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._cancel("the answer has ended")
        return await self._nursery.__aexit__(kind, error, trace)

    async def _pull(
        self, index: int, generation: Generation, sender: trio.MemorySendChannel[InferenceEvent]
    ) -> None:
        with sender:
            async for event in generation:
                if isinstance(event, PromptText | TextDelta | ReasoningDelta | ToolCallDelta | Finished):
                    event = attrs.evolve(event, index=index * generation.request.choices + event.index)
                await sender.send(event)


class ParallelEventStream(EventStream):
    """The body of a streamed response to several prompts."""

    def __init__(self, generations: ParallelGenerations, formatter: StreamFormatter) -> None:
        super().__init__(generations, formatter)
        self._generations = generations

    async def __aenter__(self) -> ParallelEventStream:
        await self._generations.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._generations.__aexit__(kind, error, trace)
