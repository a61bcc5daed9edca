"""Chats with images through the official client; the answers equal mlx-vlm's own."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from PIL import Image

from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.engines.vision_adapters import picture, png
from greenroom.tests.support.hostile import pngs
from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import serving

SIZES = ((96, 64), (200, 150))
LENGTH = 10


def shown(*parts: str | tuple[int, int]) -> dict[str, Any]:
    """Return a user message with texts, and pictures of the given sizes."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png(*part)).decode()}"},
        }
        for part in parts
    ]
    return {"role": "user", "content": content}


def by_library(folder: Path, messages: list[dict[str, Any]], images: list[Image.Image]) -> str:
    """Return the greedy answer of `mlx_vlm.stream_generate`."""
    from mlx_vlm.generate import stream_generate
    from mlx_vlm.utils import load

    model, processor = load(str(folder))
    turns = [
        {
            **turn,
            "content": [
                {"type": "image"} if part["type"] == "image_url" else part for part in turn["content"]
            ],
        }
        if isinstance(turn["content"], list)
        else turn
        for turn in messages
    ]
    text = processor.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    generate: Any = stream_generate
    answer = generate(model, processor, text, image=images or None, max_tokens=LENGTH, temperature=0.0)
    tokens = [response.token for response in answer][:LENGTH]
    return str(processor.tokenizer.decode(tokens)).lstrip()


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "default", "temperature": 0, "max_tokens": LENGTH, **fields}


@pytest.mark.parametrize(
    "kind", ["qwen3_vl", "gemma3", *deep_only(*sorted(VISION_KINDS.keys() - {"qwen3_vl", "gemma3"}))]
)
async def test_an_answer_about_images_is_the_librarys_own(
    tiny_vision_model: TinyVisionModel, kind: str
) -> None:
    folder = tiny_vision_model(kind)
    messages = [shown("Compare ", SIZES[0], " with ", SIZES[1], ".")]
    expected = by_library(folder, messages, [picture(*size) for size in SIZES])
    async with serving(Settings(models=(str(folder),), shutdown_timeout=60.0)) as served:
        first = await ask(served, lambda client: client.chat.completions.create(**asked(messages=messages)))
        said = first.choices[0].message.content or ""
        assert said.lstrip() == expected
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And now?"}]
        second = await ask(served, lambda client: client.chat.completions.create(**asked(messages=messages)))
        assert second.choices[0].message.content
        assert first.usage.prompt_tokens_details.image_tokens > 0
        assert second.usage.prompt_tokens > first.usage.prompt_tokens
        bare = await ask(
            served, lambda client: client.chat.completions.create(**asked(messages=[shown("Hello")]))
        )
        assert bare.usage.prompt_tokens < first.usage.prompt_tokens


async def test_tools_and_structured_output_hold_beside_images(tiny_vision_model: TinyVisionModel) -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": ["cat", "dog"]}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    constrained = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": schema}}
    tool = {"type": "function", "function": {"name": "look", "parameters": schema}}
    messages = [shown("What is this? ", SIZES[0])]
    async with serving(Settings(models=(str(tiny_vision_model("qwen2_5_vl")),))) as served:
        body = asked(messages=messages, max_tokens=40, response_format=constrained)
        answer = await ask(served, lambda client: client.chat.completions.create(**body))
        assert json.loads(answer.choices[0].message.content)["kind"] in ("cat", "dog")
        body = asked(messages=messages, max_tokens=60, tools=[tool], tool_choice="required")
        answer = await ask(served, lambda client: client.chat.completions.create(**body))
        assert answer.choices[0].message.tool_calls[0].function.name == "look"


async def test_an_image_that_cannot_be_decoded_is_a_400_by_name(tiny_vision_model: TinyVisionModel) -> None:
    bad = {"url": f"data:image/png;base64,{base64.b64encode(pngs.bomb()).decode()}"}
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": bad}]}]
    async with serving(Settings(models=(str(tiny_vision_model("qwen2_vl")),))) as served:
        with pytest.raises(openai.BadRequestError, match="50,000 x 50,000") as refused:
            await ask(served, lambda client: client.chat.completions.create(**asked(messages=messages)))
        assert (refused.value.param or "").startswith("messages[0].content[0]")


async def test_a_model_with_vision_off_is_served_by_its_text_half(tiny_vision_model: TinyVisionModel) -> None:
    folder = tiny_vision_model("qwen2_vl")
    settings = Settings(models=(str(folder),), model_settings=(("*", ModelSettings(vision=False)),))
    async with serving(settings) as served:
        answer = await ask(
            served,
            lambda client: client.chat.completions.create(
                **asked(messages=[{"role": "user", "content": "Hello"}])
            ),
        )
        assert answer.usage.completion_tokens == LENGTH
        messages = [shown("What is this? ", SIZES[0])]
        with pytest.raises(openai.BadRequestError, match="is a text model"):
            await ask(served, lambda client: client.chat.completions.create(**asked(messages=messages)))
