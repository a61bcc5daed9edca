"""A measured server with its accepted fields and token lengths, and its bare loops."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from greenroom.tests.bench.answer import Answer, parse_answer
from greenroom.tests.bench.load_client import ChatMessages, LoadClient
from greenroom.tests.bench.local_processes import BareLoops, BareRun, processor_time
from greenroom.tests.bench.prompts import Prompts, text_of
from greenroom.tests.bench.response_recorder import RecordedResponse

_SHORT, _LONG = 32, 256
"""Lengths in words of two prompts from which the number of tokens per word is estimated."""
_USUAL_TOKENS_PER_WORD = 1.3
"""Tokens per English word, for servers that do not report counts."""


@attrs.frozen
class Request:
    """One chat request."""

    messages: ChatMessages
    max_tokens: int
    fields: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Exchange:
    """A conversation and its response."""

    messages: ChatMessages
    answer: Answer

    @property
    def prompt_tokens(self) -> int:
        """Number of prompt tokens by the server's count, else an estimate."""
        words = sum(len(text_of(message["content"]).split()) for message in self.messages)
        return self.answer.prompt_tokens or round(words * _USUAL_TOKENS_PER_WORD)


@attrs.frozen
class ProcessorTime:
    """Processor time used so far by this process and by a local server, in seconds."""

    client: float
    server: float | None


@attrs.define
class TargetServer:
    """A measured server.

    Args:
        pid: Process id of the server, if it runs locally.
        bare_loops: Bare loops over the same model, if there are any.
    """

    client: LoadClient
    pid: int | None = None
    bare_loops: BareLoops | None = None
    _accepted: dict[str, bool] = attrs.Factory(dict)
    _prompt_cost: tuple[float, float] | None = None

    @property
    def address(self) -> str:
        """The base URL of the server."""
        return self.client.endpoint.base

    async def ask(self, messages: ChatMessages, max_tokens: int, **fields: Any) -> Exchange:
        """Send one request, and wait for its response."""
        return Exchange(messages, parse_answer(await self.client.ask(messages, max_tokens, **fields)))

    async def ask_together(self, requests: Sequence[Request]) -> list[Exchange]:
        """Send requests concurrently; return the exchanges in their order when all are complete."""
        responses: dict[int, RecordedResponse] = {}

        async def ask(number: int, request: Request) -> None:
            responses[number] = await self.client.ask(request.messages, request.max_tokens, **request.fields)

        async with trio.open_nursery() as nursery:
            for number, request in enumerate(requests):
                nursery.start_soon(ask, number, request)
        return [Exchange(each.messages, parse_answer(responses[i])) for i, each in enumerate(requests)]

    async def run_bare_loop(self, loop: str, exchanges: Sequence[Exchange]) -> BareRun | None:
        """Run a bare loop over the answered prompts; return None if there is no loop or no response."""
        answered = [exchange for exchange in exchanges if exchange.answer.tokens]
        if self.bare_loops is None or not answered:
            return None
        prompts = [exchange.messages for exchange in answered]
        return await self.bare_loops.run(loop, prompts, [exchange.answer.tokens for exchange in answered])

    def processor_time(self) -> ProcessorTime:
        """Return the processor time so far."""
        return ProcessorTime(time.process_time(), None if self.pid is None else processor_time(self.pid))

    async def accepted_fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the server accepts, testing each only once."""
        unknown = {name: value for name, value in fields.items() if name not in self._accepted}
        if unknown:
            together = await self._accepts(unknown)
            for name, value in unknown.items():
                self._accepted[name] = together or await self._accepts({name: value})
        return {name: value for name, value in fields.items() if self._accepted[name]}

    async def words_for_tokens(self, tokens: int) -> int:
        """Return the number of random words whose prompt has about that many tokens by the server's count."""
        if self._prompt_cost is None:
            prompts = Prompts(seed=0)
            short = (await self.ask(prompts.chat(_SHORT), 1)).answer.prompt_tokens
            long = (await self.ask(prompts.chat(_LONG), 1)).answer.prompt_tokens
            per_word = (long - short) / (_LONG - _SHORT)
            self._prompt_cost = (
                (per_word, short - per_word * _SHORT) if per_word > 0 else (_USUAL_TOKENS_PER_WORD, 0.0)
            )
        per_word, overhead = self._prompt_cost
        return max(round((tokens - overhead) / per_word), 1)

    async def _accepts(self, fields: Mapping[str, Any]) -> bool:
        exchange = await self.ask([{"role": "user", "content": "Hello"}], 1, **fields)
        return not exchange.answer.refused
