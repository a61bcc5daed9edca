"""Chats with audio through the official client; the answers equal mlx-vlm's own."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.engines.vision_adapters import picture, png
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import serving

LENGTH = 10


def asked(*parts: str | bytes, **fields: Any) -> dict[str, Any]:
    """Return a request with texts, audio files and images."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
            continue
        data = base64.b64encode(part).decode()
        if part.startswith(b"RIFF"):
            content.append({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
        else:
            content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
    messages = [{"role": "user", "content": content}]
    return {"model": "default", "messages": messages, "temperature": 0, "max_tokens": LENGTH, **fields}


def by_library(folder: Path, text: str, heard: np.ndarray[Any, Any]) -> str:
    """Return the greedy answer of `mlx_vlm.stream_generate`."""
    from mlx_vlm.generate import stream_generate
    from mlx_vlm.utils import load

    model, processor = load(str(folder))
    generate: Any = stream_generate
    images = [picture(96, 64)]
    answer = generate(model, processor, text, image=images, audio=[heard], max_tokens=LENGTH, temperature=0.0)
    tokens = [response.token for response in answer][:LENGTH]
    return str(processor.tokenizer.decode(tokens)).lstrip()


@pytest.mark.filterwarnings("ignore:At least one mel filter")
async def test_an_answer_about_a_sound_and_an_image_is_the_librarys_own(
    tiny_vision_model: TinyVisionModel,
) -> None:
    folder = tiny_vision_model("gemma4")
    tone = sounds.tone(0.5)
    text = "<|im_start|>user\nHear <|audio|> and see <|image|>.<|im_end|>\n<|im_start|>assistant\n"
    heard = np.frombuffer(tone[44:], np.int16).astype(np.float32) / 32768
    expected = by_library(folder, text, heard)
    async with serving(Settings(models=(str(folder),), shutdown_timeout=60.0)) as served:
        body = asked("Hear ", tone, " and see ", png(96, 64), ".")
        answer = await ask(served, lambda client: client.chat.completions.create(**body))
        assert (answer.choices[0].message.content or "").lstrip() == expected
        assert answer.usage.prompt_tokens_details.image_tokens == 60
        other = asked("Hear ", sounds.tone(0.6), " and see ", png(96, 64), ".")
        assert (
            await ask(served, lambda client: client.chat.completions.create(**other))
        ).usage.prompt_tokens > (answer.usage.prompt_tokens)
        long = asked(sounds.tone(4.5))
        with pytest.raises(openai.BadRequestError, match="4 seconds"):
            await ask(served, lambda client: client.chat.completions.create(**long))


async def test_a_model_that_does_not_hear_says_so(tiny_vision_model: TinyVisionModel) -> None:
    async with serving(Settings(models=(str(tiny_vision_model("qwen2_vl")),))) as served:
        with pytest.raises(openai.BadRequestError, match="does not hear") as refused:
            await ask(served, lambda client: client.chat.completions.create(**asked("Hear ", sounds.tone())))
        assert (refused.value.param or "").startswith("messages[0].content[1]")
        body = asked("Hello", modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"})
        with pytest.raises(openai.BadRequestError, match="modalities"):
            await ask(served, lambda client: client.chat.completions.create(**body))
