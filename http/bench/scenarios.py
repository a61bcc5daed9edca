"""What a load looks like: each scenario asks in its own way and knows what a bare loop would have to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

import attrs
import trio

from greenroom.http.bench.load_client import ChatMessages, LoadClient
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.recorder import Recording


@attrs.frozen
class Asked:
    """What was asked, and the recording of what came back."""

    messages: ChatMessages
    recording: Recording


class Scenario(ABC):
    """One shape of load. A run is one pass through it with prompts of its own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the report calls it."""

    @property
    @abstractmethod
    def streams(self) -> int:
        """Streams that run at once."""

    @abstractmethod
    async def run(self, client: LoadClient, prompts: Prompts) -> tuple[Asked, ...]:
        """Ask, and return when all answers are complete."""


@attrs.frozen
class ConcurrentStreams(Scenario):
    """Several streams that begin together.

    Args:
        streams: How many; 1 is a lone stream.
        tokens: Longest answer.
        prompt_words: Length of each prompt.
    """

    streams: int
    tokens: int
    prompt_words: int

    @property
    def name(self) -> str:
        return "1 stream" if self.streams == 1 else f"{self.streams} streams"

    async def run(self, client: LoadClient, prompts: Prompts) -> tuple[Asked, ...]:
        asked: list[Asked] = []

        async def ask(messages: ChatMessages) -> None:
            asked.append(Asked(messages, await client.ask(messages, self.tokens)))

        async with trio.open_nursery() as nursery:
            for _ in range(self.streams):
                nursery.start_soon(partial(ask, prompts.chat(self.prompt_words)))
        return tuple(asked)
