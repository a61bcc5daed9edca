"""The matched stop string of a choice, and a request's timings, reported to OpenAI's client."""

from __future__ import annotations

import time
from typing import Any

import attrs
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask, body, stream_of, streamed_text
from greenroom.tests.support.servers.http_servers import Served, serving
from greenroom.tests.support.servers.shared_servers import Shared


def endings(choices: list[Any]) -> dict[int, tuple[str, str | None]]:
    """Return finish reason and stop string by choice."""
    return {choice.index: (choice.finish_reason, choice.stop_reason) for choice in choices}


def last_choices(chunks: list[Any]) -> list[Any]:
    """Return the last chunk's choices of a stream; earlier ones must name no stop string."""
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert not any(hasattr(choice, "stop_reason") for choice in choices if choice.finish_reason is None)
    return [choice for choice in choices if choice.finish_reason is not None]


async def chat(served: Served, **fields: Any) -> Any:
    return await ask(served, lambda client: client.chat.completions.create(**body(**fields)))


async def test_a_chat_names_the_stop_string_that_matched(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = (await chat(served)).choices[0]
    assert (whole.finish_reason, whole.stop_reason) == ("length", None)
    middle = whole.message.content[len(whole.message.content) // 2 :][:3]
    stops = ["no such words", middle]
    for stop in (stops, middle):
        stopped = await chat(served, stop=stop)
        assert endings(stopped.choices) == {0: ("stop", middle)}
        chunks = await stream_of(served, stop=stop)
        assert endings(last_choices(chunks)) == {0: ("stop", middle)}
        assert streamed_text(chunks) == stopped.choices[0].message.content
    ended = await chat(served, logit_bias={"2": 100})
    assert endings(ended.choices) == {0: ("stop", None)}


async def test_each_of_several_choices_names_its_own(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    free = {"n": 3, "seed": 1, "temperature": 1}
    texts = [choice.message.content for choice in (await chat(served, **free)).choices]
    stops = [texts[0][-6:], texts[1][-6:]]
    expected = {index: first_match(text, stops) for index, text in enumerate(texts)}
    assert len({expected[0], expected[1], None}) == 3
    whole = await chat(served, stop=stops, **free)
    chunks = await stream_of(served, stop=stops, **free)
    for choices in (whole.choices, last_choices(chunks)):
        assert {index: stop for index, (_, stop) in endings(choices).items()} == expected


def first_match(text: str, stops: list[str]) -> str | None:
    """Return the stop string that appears first in a text."""
    found = {text.index(stop) + len(stop): stop for stop in stops if stop in text}
    return found[min(found)] if found else None


async def test_a_raw_completion_names_it_for_every_prompt(settings: Settings, shared: Shared) -> None:
    fields: Any = {"model": "qwen3", "prompt": ["The sea", "A hill"], "max_tokens": 12, "temperature": 0}
    served = shared(settings)
    plain = await ask(served, lambda client: client.completions.create(**fields))
    stops = [plain.choices[1].text[-3:]]
    expected = {choice.index: first_match(choice.text, stops) for choice in plain.choices}
    assert expected[1] == stops[0]
    whole = await ask(served, lambda client: client.completions.create(**fields, stop=stops))
    chunks = await ask(
        served, lambda client: list(client.completions.create(**fields, stop=stops, stream=True))
    )
    for choices in (whole.choices, last_choices(chunks)):
        assert {index: stop for index, (_, stop) in endings(choices).items()} == expected


@pytest.mark.parametrize("stream", [False, True])
async def test_timings_have_the_wait_and_the_whole(settings: Settings, stream: bool) -> None:
    async with serving(attrs.evolve(settings, max_loaded_models=1)) as served:
        began = time.perf_counter()  # the clock of the engine's times
        answer = (await stream_of(served))[-1] if stream else await chat(served)
        figures = answer.timings
        passed = (time.perf_counter() - began) * 1e3
        parts = figures["queued_ms"] + figures["prompt_ms"] + figures["predicted_ms"]
        assert figures["queued_ms"] > 0  # includes loading the model
        assert figures["total_ms"] == pytest.approx(parts, abs=0.01)
        assert figures["total_ms"] <= passed
