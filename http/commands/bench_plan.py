"""The plan of `greenroom bench`: scenarios and servers."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from greenroom.http.bench.prompts import Size
    from greenroom.http.bench.scenario import Scenario
    from greenroom.http.bench.target_server import TargetServer

SCENARIOS = ("streams", "mixed", "long-prompt", "shared-prompt", "conversation")
"""Scenarios of `all`, which every chat model can run."""
OF_IMAGES = ("images", "images-among-streams")


@attrs.frozen
class BenchPlan:
    """Options of `greenroom bench`."""

    target: str
    model: str | None
    against: str | None
    scenario: tuple[str, ...]
    concurrency: tuple[int, ...]
    requests: int
    beside: int
    long_tokens: int
    turns: int
    tokens: int
    prompt_words: int
    image_sizes: tuple[Size, ...]
    repeats: int
    seed: int | None
    extra: dict[str, Any]
    bare: bool
    serve: tuple[str, ...]

    @property
    def is_url(self) -> bool:
        """True if the target is the URL of a server."""
        return is_url(self.target)

    def scenarios(self) -> list[Scenario]:
        """Return the scenarios in the order of the options."""
        from greenroom.http.bench.scenarios.conversation import Conversation
        from greenroom.http.bench.scenarios.images import Images, ImagesAmongStreams
        from greenroom.http.bench.scenarios.long_prompt import LongPrompt
        from greenroom.http.bench.scenarios.mixed import Mixed
        from greenroom.http.bench.scenarios.shared_prompt import SharedPrompt
        from greenroom.http.bench.scenarios.streams import Streams

        tokens, words, sizes = self.tokens, self.prompt_words, self.image_sizes
        known: dict[str, list[Scenario]] = {
            "streams": [Streams(streams, tokens, words) for streams in self.concurrency],
            "mixed": [Mixed(self.requests, tokens, words)],
            "long-prompt": [LongPrompt(self.beside, self.long_tokens, stream_words=words)],
            "shared-prompt": [SharedPrompt(self.long_tokens)],
            "conversation": [Conversation(self.turns, tokens, words)],
            "images": [Images(streams, tokens, words, sizes) for streams in self.concurrency],
            "images-among-streams": [ImagesAmongStreams(self.beside, stream_words=words, sizes=sizes)],
        }
        names = SCENARIOS if "all" in self.scenario else dict.fromkeys(self.scenario)
        return [scenario for name in names for scenario in known[name]]


def is_url(text: str) -> bool:
    """Return whether a target is the URL of a server and not a model."""
    return text.startswith(("http://", "https://"))


async def open_targets(plan: BenchPlan, stack: AsyncExitStack) -> list[TargetServer]:
    """Open the servers to measure; for a model, start a server, and the bare loops if requested."""
    from greenroom.http.bench.load_client import LoadClient, find_endpoint
    from greenroom.http.bench.local_processes import open_bare_loops, open_local_server
    from greenroom.http.bench.response_recorder import open_response_recorder
    from greenroom.http.bench.target_server import TargetServer

    address, pid, loops = plan.target, None, None
    if not plan.is_url:
        server = await stack.enter_async_context(open_local_server(plan.target, plan.serve))
        address, pid = server.address, server.pid
        if plan.bare:
            loops = await stack.enter_async_context(open_bare_loops(plan.target))
    key = os.environ.get("OPENAI_API_KEY", "none")
    recorder = await stack.enter_async_context(open_response_recorder())
    endpoint = await find_endpoint(address, plan.model, key, plan.extra)
    targets = [TargetServer(LoadClient(endpoint, recorder), pid, loops)]
    if plan.against is not None:
        other = await find_endpoint(plan.against, None, key, plan.extra)
        targets.append(TargetServer(LoadClient(other, recorder)))
    return targets
