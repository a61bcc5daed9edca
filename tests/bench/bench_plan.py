"""The plan of the bench: scenarios and servers."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from greenroom.tests.bench.measurement import Scenario
    from greenroom.tests.bench.target_server import TargetServer

SCENARIOS = ("streams", "mixed", "long-prompt")


@attrs.frozen(kw_only=True)
class TargetOptions:
    """Options that choose the servers to measure."""

    target: str
    model: str | None = None
    against: str | None = None
    extra: dict[str, Any] = attrs.Factory(dict)
    bare: bool = True
    serve: tuple[str, ...] = ()

    @property
    def is_url(self) -> bool:
        """True if the target is the URL of a server."""
        return is_url(self.target)


@attrs.frozen(kw_only=True)
class BenchPlan(TargetOptions):
    """Options of the bench."""

    scenario: tuple[str, ...]
    concurrency: tuple[int, ...]
    requests: int
    beside: int
    long_tokens: int
    tokens: int
    prompt_words: int
    repeats: int
    seed: int | None

    def scenarios(self) -> list[Scenario]:
        """Return the scenarios in the order of the options."""
        from greenroom.tests.bench.long_prompt import LongPrompt
        from greenroom.tests.bench.mixed import Mixed
        from greenroom.tests.bench.streams import Streams

        tokens, words = self.tokens, self.prompt_words
        known: dict[str, list[Scenario]] = {
            "streams": [Streams(streams, tokens, words) for streams in self.concurrency],
            "mixed": [Mixed(self.requests, tokens, words)],
            "long-prompt": [LongPrompt(self.beside, self.long_tokens, stream_words=words)],
        }
        names = SCENARIOS if "all" in self.scenario else dict.fromkeys(self.scenario)
        return [scenario for name in names for scenario in known[name]]


def is_url(text: str) -> bool:
    """Return whether a target is the URL of a server and not a model."""
    return text.startswith(("http://", "https://"))


async def open_targets(options: TargetOptions, stack: AsyncExitStack) -> list[TargetServer]:
    """Open the servers to measure; for a model, start a server, and the bare loops if requested."""
    from greenroom.tests.bench.load_client import LoadClient, find_endpoint
    from greenroom.tests.bench.local_processes import open_bare_loops, open_local_server
    from greenroom.tests.bench.response_recorder import open_response_recorder
    from greenroom.tests.bench.target_server import TargetServer

    address, pid, loops = options.target, None, None
    if not options.is_url:
        server = await stack.enter_async_context(open_local_server(options.target, options.serve))
        address, pid = server.address, server.pid
        if options.bare:
            loops = await stack.enter_async_context(open_bare_loops(options.target))
    key = os.environ.get("OPENAI_API_KEY", "none")
    recorder = await stack.enter_async_context(open_response_recorder())
    endpoint = await find_endpoint(address, options.model, key, options.extra)
    targets = [TargetServer(LoadClient(endpoint, recorder), pid, loops)]
    if options.against is not None:
        other = await find_endpoint(options.against, None, key, options.extra)
        targets.append(TargetServer(LoadClient(other, recorder)))
    return targets
