"""A server that is measured, with what has to be found out about it and the bare loops that do its work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from greenroom.http.bench.load_client import ChatMessages, LoadClient
from greenroom.http.bench.local_processes import BareLoops, BareRun
from greenroom.http.bench.processor_time import processor_time
from greenroom.http.bench.prompts import Prompts
from greenroom.http.bench.reading import Answer, read
from greenroom.http.bench.recorder import Recording

_SHORT, _LONG = 32, 256
"""Words of the two prompts whose lengths tell what a word costs."""
_USUAL = 1.3
"""Tokens of an English word, for servers that do not count."""


@attrs.frozen
class Request:
    """What one stream asks for."""

    messages: ChatMessages
    max_tokens: int
    fields: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Exchange:
    """What was asked and what came back."""

    messages: ChatMessages
    answer: Answer

    @property
    def prompt_tokens(self) -> int:
        """As the server counts them, else guessed."""
        words = sum(len(message["content"].split()) for message in self.messages)
        return self.answer.prompt_tokens or round(words * _USUAL)


@attrs.frozen
class Spent:
    """Seconds of processor time, of this process and of a server of ours, up to now."""

    client: float
    server: float | None


@attrs.define
class TargetServer:
    """One server.

    Args:
        pid: The server's process, if it is one of ours.
        loops: Bare loops over the same model, if there are any.
    """

    client: LoadClient
    pid: int | None = None
    loops: BareLoops | None = None
    _taken: dict[str, bool] = attrs.Factory(dict)
    _word: tuple[float, float] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.client.target.base

    async def ask(self, messages: ChatMessages, max_tokens: int, **fields: Any) -> Exchange:
        """A request that runs alone."""
        return Exchange(messages, read(await self.client.ask(messages, max_tokens, **fields)))

    async def ask_together(self, requests: Sequence[Request]) -> list[Exchange]:
        """Requests that begin together, in their order; they are read when all are complete."""
        recordings: dict[int, Recording] = {}

        async def ask(number: int, request: Request) -> None:
            recordings[number] = await self.client.ask(request.messages, request.max_tokens, **request.fields)

        async with trio.open_nursery() as nursery:
            for number, request in enumerate(requests):
                nursery.start_soon(ask, number, request)
        return [Exchange(each.messages, read(recordings[i])) for i, each in enumerate(requests)]

    async def bare(self, loop: str, exchanges: Sequence[Exchange]) -> BareRun | None:
        """What a bare loop takes for the answered exchanges; None if there is no loop or no answer."""
        answered = [exchange for exchange in exchanges if exchange.answer.tokens]
        if self.loops is None or not answered:
            return None
        prompts = [exchange.messages for exchange in answered]
        return await self.loops.run(loop, prompts, [exchange.answer.tokens for exchange in answered])

    async def bare_continuation(self, known: ChatMessages, messages: ChatMessages) -> BareRun | None:
        """What mlx-lm takes for what a conversation adds to what is `known` of it; None without a loop."""
        if self.loops is None:
            return None
        return await self.loops.run("bare_continuation", [known, messages], [])

    def spent(self) -> Spent:
        """Processor time so far."""
        return Spent(time.process_time(), None if self.pid is None else processor_time(self.pid))

    async def taken(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the fields that the server does not refuse; it is asked once about each."""
        unknown = {name: value for name, value in fields.items() if name not in self._taken}
        if unknown:
            together = await self._takes(unknown)
            for name, value in unknown.items():
                self._taken[name] = together or await self._takes({name: value})
        return {name: value for name, value in fields.items() if self._taken[name]}

    async def words_for(self, tokens: int) -> int:
        """Random words that make a prompt of about so many tokens by the server's own count."""
        if self._word is None:
            prompts = Prompts(seed=0)
            short = (await self.ask(prompts.chat(_SHORT), 1)).answer.prompt_tokens
            long = (await self.ask(prompts.chat(_LONG), 1)).answer.prompt_tokens
            of_word = (long - short) / (_LONG - _SHORT)
            self._word = (of_word, short - of_word * _SHORT) if of_word > 0 else (_USUAL, 0.0)
        of_word, around = self._word
        return max(round((tokens - around) / of_word), 1)

    async def _takes(self, fields: Mapping[str, Any]) -> bool:
        exchange = await self.ask([{"role": "user", "content": "Hello"}], 1, **fields)
        return not exchange.answer.refused
