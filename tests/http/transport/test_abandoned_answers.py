"""A client that leaves stops its answer by the next step, in every protocol, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio.testing

from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.watched_engines import WatchedEngines, until, writes
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, connected, serving

PROMPT = "Tell me about the sea"
MESSAGES = [{"role": "user", "content": PROMPT}]
TOKENS = 20_000
OPTIONS = {"num_predict": TOKENS, "temperature": 0}
RESPONSE = {"input": PROMPT, "max_output_tokens": TOKENS, "temperature": 0}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0},
    "/api/chat": {"messages": MESSAGES, "options": OPTIONS},
    "/api/generate": {"prompt": PROMPT, "options": OPTIONS},
    "/v1/responses": {**RESPONSE, "store": False},
    "/v1/responses?stored": {**RESPONSE, "store": True},
}
"""Request bodies by path; an ignored query tells apart two cases of one path."""


@pytest.mark.parametrize("path", BODIES)
async def test_an_answer_nobody_waits_for_stops_by_the_next_step(path: str, tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),))
    engines = WatchedEngines(settings)
    async with serving(settings, engines=engines) as served:
        for stream in (True, False):
            [last, *others] = await steps_after_leaving(served, engines, path, stream)
            assert not others, (stream, others)
            [end] = [event for event in last if isinstance(event, Finished)]
            assert end.reason == "cancelled"
            assert end.usage.generated < TOKENS / 2


async def steps_after_leaving(
    served: Served, engines: WatchedEngines, path: str, stream: bool
) -> list[list[InferenceEvent]]:
    """Leave in the middle of an answer; return the events of the engine's further steps until it is idle."""
    begun = 0 if engines.engine is None else len(engines.engine.steps)
    async with connected(served.server) as client:
        body = {"model": "default", **BODIES[path], "stream": stream}
        await client.request("POST", path, json.dumps(body).encode())
        if stream:
            head = await client.read_until(b"\r\n\r\n")
            assert b" 200 " in head
        await until(lambda: engines.engine is not None and writes(engines.engine.steps[begun:]))
        engine = engines.engine
        assert engine is not None
        engine.go_on.clear()
        await until(engine.stands.is_set)
    try:
        await until(lambda: not served.server.loop.connections)
        await trio.testing.wait_all_tasks_blocked()
        before = len(engine.steps)
    finally:
        engine.go_on.set()
    await until(lambda: len(engine.steps) > before and not engine.has_work)
    return engine.steps[before:]
