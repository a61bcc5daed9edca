"""Greedy sampling for chats with images unless the request says otherwise, with every official client."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients import anthropic_clients, ollama_clients, openai_clients
from greenroom.tests.support.clients.response_events import read_events
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

BEACH = pictures.photo(64, 48)
TEXT = base64.b64encode(BEACH).decode()
URL = f"data:image/jpeg;base64,{TEXT}"
LENGTH = 16
QUESTION = "What is this?"

Ask = Callable[..., Any]


@pytest.fixture
def settings(tiny_vision_model: TinyVisionModel, tmp_path: Path) -> Settings:
    """Return settings with a vision model whose makers recommend sampling."""
    folder = tmp_path / "sees"
    shutil.copytree(tiny_vision_model("qwen2_vl"), folder)
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.9, "top_p": 0.75}))
    return Settings(models=(str(folder),), db=":memory:", shutdown_timeout=60.0)


async def chat(served: Served, *, image: bool, **fields: Any) -> str:
    parts: list[Any] = [{"type": "text", "text": QUESTION}]
    parts += [{"type": "image_url", "image_url": {"url": URL}}] if image else []
    answer = await openai_clients.ask(
        served,
        lambda client: client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": parts}],
            max_tokens=LENGTH,
            reasoning_effort="none",
            **fields,
        ),
    )
    return str(answer.choices[0].message.content)


async def response(served: Served, *, image: bool, **fields: Any) -> Any:
    parts: list[Any] = [{"type": "input_text", "text": QUESTION}]
    parts += [{"type": "input_image", "image_url": URL, "detail": "auto"}] if image else []
    return await openai_clients.ask(
        served,
        lambda client: client.responses.create(
            model="default",
            input=[{"role": "user", "content": parts}],
            max_output_tokens=LENGTH,
            reasoning={"effort": "none"},
            **fields,
        ),
    )


async def responded(served: Served, *, image: bool, **fields: Any) -> str:
    return str((await response(served, image=image, **fields)).output_text)


async def message(served: Served, *, image: bool, **fields: Any) -> str:
    source = {"type": "base64", "media_type": "image/jpeg", "data": TEXT}
    parts: list[Any] = [{"type": "text", "text": QUESTION}]
    parts += [{"type": "image", "source": source}] if image else []
    answer: Any = await anthropic_clients.ask(
        served,
        lambda client: client.messages.create(
            model="default",
            messages=[{"role": "user", "content": parts}],
            max_tokens=LENGTH,
            extra_body=fields,
        ),
    )
    return "".join(block.text for block in answer.content)


async def ollama(served: Served, *, image: bool, **fields: Any) -> str:
    asked = {"role": "user", "content": QUESTION, **({"images": [BEACH]} if image else {})}
    options = {"num_predict": LENGTH, **fields}
    answer = await ollama_clients.ask(
        served, lambda client: client.chat(model="default", messages=[asked], options=options, think=False)
    )
    return str(answer.message.content)


async def several(ask: Ask, served: Served, **fields: Any) -> set[str]:
    """Return the set of answers to three equal requests."""
    return {await ask(served, **fields) for _ in range(3)}


@pytest.mark.deep
async def test_what_shows_an_image_is_answered_greedily_in_every_protocol(settings: Settings) -> None:
    async with serving(settings) as served:
        for ask in (chat, responded, message, ollama):
            greedy = await several(ask, served, image=True)
            assert greedy == {await ask(served, image=True, temperature=0)}, ask
            assert len(await several(ask, served, image=True, temperature=1)) > 1, ask
            # For text, the same model samples as its makers recommend.
            assert len(await several(ask, served, image=False)) > 1, ask
    async with serving(attrs.evolve(settings, images_greedy=False)) as served:
        assert len(await several(chat, served, image=True)) > 1
    async with serving(attrs.evolve(settings, temperature=1.0)) as served:
        assert len(await several(chat, served, image=True)) > 1


@pytest.mark.parametrize("store", [False, True])
async def test_a_response_tells_the_temperature_that_was_used(settings: Settings, store: bool) -> None:
    async with serving(settings) as served:
        ask = partial(response, served, store=store)
        seen, text = await ask(image=True), await ask(image=False)
        assert (seen.temperature, seen.top_p) == (0.0, 0.75)
        assert (text.temperature, text.top_p) == (0.9, 0.75)
        told = await ask(image=True, temperature=0.5, top_p=0.25)
        assert (told.temperature, told.top_p) == (0.5, 0.25)
        body = {"model": "default", "input": [*_input()], "max_output_tokens": 4, "store": store}
        streamed = read_events(
            (await fetch(served.server, "POST", "/v1/responses", {**body, "stream": True})).body
        )
        assert {event["response"]["temperature"] for event in streamed if "response" in event} == {0.0}
        if store:
            kept = await openai_clients.ask(served, lambda client: client.responses.retrieve(seen.id))
            assert kept.temperature == 0.0
            # The history has the image.
            again = await openai_clients.ask(
                served,
                lambda client: client.responses.create(
                    model="default", input="And now?", previous_response_id=seen.id, max_output_tokens=4
                ),
            )
            assert again.temperature == 0.0


async def test_a_run_in_the_background_tells_it_from_its_first_event(settings: Settings) -> None:
    body = {"model": "default", "input": [*_input()], "max_output_tokens": 4, "background": True}
    async with serving(settings) as served:
        answer = await fetch(served.server, "POST", "/v1/responses", {**body, "stream": True})
        events = read_events(answer.body)
        told = [event["response"] for event in events if "response" in event]
        assert {one["temperature"] for one in told} == {0.0}
        path = f"/v1/responses/{told[0]['id']}"
        again = await fetch(served.server, "GET", f"{path}?stream=true")
        assert again.body == answer.body
        begun = await fetch(served.server, "POST", "/v1/responses", body)
        assert begun.json()["temperature"] == 0.0


def _input() -> list[dict[str, Any]]:
    parts = [{"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": URL}]
    return [{"role": "user", "content": parts}]
