"""The tiny vision models' answers vary enough to tell which image they are about."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from greenroom.tests.support.models.tiny_vision_kinds import VISION_KINDS
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_an_answer_depends_on_its_image(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    from mlx_vlm.utils import load

    model, processor = load(str(tiny_vision_model(kind)))
    one, other = (_answer(model, processor, _image(seed)) for seed in (1, 2))
    assert len(set(one)) >= 15
    assert one != other


@pytest.mark.parametrize("kind", VISION_KINDS)
def test_the_template_takes_tools_and_plain_contents(tiny_vision_model: TinyVisionModel, kind: str) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_vision_model(kind))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        tools=tools,
        tokenize=False,
        add_generation_prompt=True,
    )
    assert "Be brief." in text
    assert json.dumps("look") in text
    assert "<|im_start|>user\nHello<|im_end|>" in text


def _image(seed: int) -> Any:
    from PIL import Image

    blocks = np.random.default_rng(seed).integers(0, 256, (10, 10, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize((100, 100), Image.Resampling.NEAREST)


def _answer(model: Any, processor: Any, image: Any) -> list[int | None]:
    from mlx_vlm.generate import stream_generate

    content = [{"type": "image"}, {"type": "text", "text": "def read(self, size=-1):"}]
    prompt = processor.tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    answer = stream_generate(model, processor, prompt, image=[image], max_tokens=30, temperature=0.0)
    return [response.token for response in answer][:30]
