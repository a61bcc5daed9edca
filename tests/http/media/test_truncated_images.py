"""Overlong conversations with images: refused, or shortened at the client's request."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.engines.vision_adapters import png
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, fetch, serving

TURNS = 8


def asked(words: str, *seeds: int, size: int = 200) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{base64.b64encode(png(size, size, seed)).decode()}" for seed in seeds]
    images = [{"type": "input_image", "image_url": url} for url in urls]
    return {"role": "user", "content": [*images, {"type": "input_text", "text": words}]}


def talk() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    for turn in range(TURNS):
        said.append(asked(f"Look at number {turn}, this and that", turn))
        said.append({"role": "assistant", "content": f"Seen {turn}, indeed so. " * 4})
    return said


async def respond(served: Served, items: list[dict[str, Any]], **fields: Any) -> RawResponse:
    body = {"model": "default", "input": items, "max_output_tokens": 8, "temperature": 0, **fields}
    return await fetch(served.server, "POST", "/v1/responses", body)


@pytest.mark.deep
async def test_turns_with_images_are_left_out_as_wholes(tiny_vision_model: TinyVisionModel) -> None:
    settings = Settings(models=(str(tiny_vision_model("qwen2_vl")),), max_context=600, db=":memory:")
    long = [*talk(), asked("And these?", 50, 51)]
    async with serving(settings) as served:
        refused = await respond(served, long)
        assert refused.status == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        shortened = (await respond(served, long, truncation="auto")).json()
        assert 0 < shortened["dropped_messages"] < len(long) - 1
        rest = (await respond(served, long[shortened["dropped_messages"] :])).json()
        assert rest["output"][0]["content"] == shortened["output"][0]["content"]
        assert rest["usage"]["input_tokens"] == shortened["usage"]["input_tokens"]
        last_alone = [*talk(), asked("?", 1, 2, 3, 4, size=600)]
        too_long = await respond(served, last_alone, truncation="auto")
        assert too_long.status == 400
        assert f"without the {2 * TURNS} messages" in too_long.json()["error"]["message"]
