"""Images sent to a vision model by every official client, and their numbers in a conversation."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients import anthropic_clients, ollama_clients, openai_clients
from greenroom.tests.support.hostile import pictures
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

BEACH, MOUNTAIN = pictures.photo(64, 48), pictures.photo(56, 56, "PNG")
TEXTS = {photo: base64.b64encode(photo).decode() for photo in (BEACH, MOUNTAIN)}
URL = f"data:image/jpeg;base64,{TEXTS[BEACH]}"
LENGTH = 12


def name_of(photo: bytes, extension: str) -> str:
    return f"image_{hashlib.sha256(photo).hexdigest()[:8]}.{extension}"


BEACH_NAME, MOUNTAIN_NAME = name_of(BEACH, "jpeg"), name_of(MOUNTAIN, "png")


@pytest.fixture
def settings(tiny_vision_model: TinyVisionModel, tiny_model: Callable[..., Path]) -> Settings:
    models = (str(tiny_vision_model("qwen2_vl")), str(tiny_model("llama")))
    return Settings(models=models, temperature=0.0, db=":memory:", shutdown_timeout=60.0)


def chat(client: Any, *content: Any, **fields: Any) -> str:
    answer = client.chat.completions.create(
        model="default",
        messages=[{"role": "user", "content": list(content)}],
        max_tokens=LENGTH,
        extra_body={"enable_thinking": False},
        **fields,
    )
    if not fields.get("stream"):
        return str(answer.choices[0].message.content)
    return openai_clients.streamed_text(list(answer))


async def test_every_protocols_client_sends_an_image_and_gets_the_same_answer(settings: Settings) -> None:
    image: Any = {"type": "image_url", "image_url": {"url": URL}}
    text: Any = {"type": "text", "text": "What is this?"}
    async with serving(settings) as served:
        said = await openai_clients.ask(served, lambda client: chat(client, image, text))
        streamed = await openai_clients.ask(served, lambda client: chat(client, image, text, stream=True))
        other = await openai_clients.ask(served, lambda client: chat(client, text))
        assert said == streamed != other

        def respond(client: Any) -> Any:
            content = [
                {"type": "input_image", "image_url": URL, "detail": "auto"},
                {"type": "input_text", "text": "What is this?"},
            ]
            return client.responses.create(
                model="default",
                input=[{"role": "user", "content": content}],
                max_output_tokens=LENGTH,
                reasoning={"effort": "none"},
            )

        response = await openai_clients.ask(served, respond)
        assert response.output_text == said
        going_on: Any = await openai_clients.ask(
            served,
            lambda client: client.responses.create(
                model="default",
                input="And now?",
                previous_response_id=response.id,
                max_output_tokens=LENGTH,
                reasoning={"effort": "none"},
            ),
        )
        assert going_on.usage.input_tokens > response.usage.input_tokens + LENGTH
        assert going_on.usage.input_tokens_details.cached_tokens > response.usage.input_tokens // 2

        def message(client: Any) -> str:
            source = {"type": "base64", "media_type": "image/jpeg", "data": TEXTS[BEACH]}
            content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
            answer = client.messages.create(
                model="default",
                messages=[{"role": "user", "content": content}],
                max_tokens=LENGTH,
            )
            return "".join(block.text for block in answer.content)

        assert await anthropic_clients.ask(served, message) == said

        def ollamas(client: Any) -> tuple[str, str]:
            options = {"num_predict": LENGTH, "temperature": 0}
            asked = {"role": "user", "content": "What is this?", "images": [BEACH]}
            answered = client.chat(model="default", messages=[asked], options=options, think=False)
            generated = client.generate(
                model="default", prompt="What is this?", images=[BEACH], options=options, think=False
            )
            return answered.message.content, generated.response

        assert await ollama_clients.ask(served, ollamas) == (said, said)


async def ask(served: Served, model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the next message of a conversation."""
    body = {"model": model, "messages": messages, "max_tokens": 8}
    answer = await fetch(served.server, "POST", "/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return {"role": "assistant", "content": message["content"]}


def shown(text: str, photo: bytes, kind: str) -> dict[str, Any]:
    url = f"data:image/{kind};base64,{TEXTS[photo]}"
    image = {"type": "image_url", "image_url": {"url": url}}
    return {"role": "user", "content": [{"type": "text", "text": text}, image]}


async def read_by(served: Served, model: str, messages: list[dict[str, Any]]) -> str:
    """Return a model's prompt for a conversation."""
    body = {"model": model, "messages": messages}
    answer = await fetch(served.server, "POST", "/apply-template", body)
    return str(answer.json()["prompt"])


async def test_document_002s_workflow_across_models(settings: Settings) -> None:
    sees, reads = (Path(model).name for model in settings.models)
    async with serving(attrs.evolve(settings, images_ids="on")) as served:
        # 1. The first image goes to the vision model. 2. Its answer has the table.
        first = await ask(served, sees, [shown("describe", BEACH, "jpeg")])
        assert first["content"].endswith(
            "\n\n<!-- greenroom:filenames -->\n| Image | Filename |\n|-------|----------|"
            f"\n| 1 | {BEACH_NAME} |"
        )
        # 3. The client keeps only text, and asks a text model.
        history = [{"role": "user", "content": "describe"}, first, {"role": "user", "content": "What color?"}]
        second = await ask(served, reads, history)
        assert "filenames" not in second["content"]
        prompt = await read_by(served, reads, history)
        assert f"[Image 1: {BEACH_NAME}]\ndescribe" in prompt
        assert "filenames" not in prompt
        # 4. Another image goes to the vision model. 5. It gets number 2.
        history += [second, shown("new picture", MOUNTAIN, "png")]
        third = await ask(served, sees, history)
        assert f"\n| 2 | {MOUNTAIN_NAME} |" in third["content"]
        assert BEACH_NAME not in third["content"]
        # The first image is sent again and keeps its number.
        history[-1] = {"role": "user", "content": "new picture"}
        history += [third, shown("and again", BEACH, "jpeg")]
        fourth = await ask(served, sees, history)
        assert fourth["content"].endswith(f"\n| 1 | {BEACH_NAME} |")
        # The text model's prompt has both numbers, whether the client dropped the images or not.
        history += [fourth, {"role": "user", "content": "Which is better for a vacation?"}]
        fifth = await ask(served, reads, history)
        prompt = await read_by(served, reads, history)
        assert prompt.count(f"[Image 1: {BEACH_NAME}]") == 2
        assert prompt.count(f"[Image 2: {MOUNTAIN_NAME}]\nnew picture") == 1
        assert "filenames" not in json.dumps([fifth, prompt])
