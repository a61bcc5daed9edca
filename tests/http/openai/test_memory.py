"""Low memory as clients see it: requests wait, or fail with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import openai
import pytest
import trio

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

TinyModel = Callable[..., Path]


async def answers(served: Served, count: int) -> list[str | None]:
    """Return the answers to `count` concurrent clients."""
    texts: list[str | None] = [None] * count
    async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any", max_retries=0) as client:

        async def ask(index: int) -> None:
            answer = await client.chat.completions.create(
                model="qwen3",
                messages=[{"role": "user", "content": f"Story {index}, " + "please " * (3 * index)}],
                max_tokens=30,
                temperature=index % 2,
                seed=index,
                reasoning_effort="none",
            )
            assert answer.choices[0].finish_reason == "length"
            texts[index] = answer.choices[0].message.content

        with trio.fail_after(300):
            async with trio.open_nursery() as nursery:
                for index in range(count):
                    nursery.start_soon(ask, index)
    return texts


@pytest.mark.deep
async def test_answers_are_the_same_with_room_for_a_few_at_once(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    async with serving(settings) as served:
        free = await answers(served, 16)
    async with serving(attrs.evolve(settings, kv_cache_bytes=2_500_000)) as served:
        assert await answers(served, 16) == free
    assert None not in free
    assert len(set(free)) == 16


@pytest.mark.deep
async def test_a_prompt_that_outgrows_kv_cache_bytes_is_refused(tiny_model: TinyModel) -> None:
    settings = Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)
    request = {"model": "qwen3", "prompt": [300] * 2000, "max_tokens": 2}
    async with serving(settings) as served:
        assert (await fetch(served.server, "POST", "/v1/completions", request)).status == 200
    async with serving(attrs.evolve(settings, kv_cache_bytes=2 * MEGABYTE)) as served:
        refused = await fetch(served.server, "POST", "/v1/completions", request)
        assert (refused.status, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert "kv_cache_bytes" in refused.json()["detail"]
        short = {**request, "prompt": [300] * 200}
        assert (await fetch(served.server, "POST", "/v1/completions", short)).status == 200


def needs(folder: Path) -> int:
    """Return the bytes that a model needs by the pool's own computation."""
    return load_size(folder, detect(folder), Settings()).total


async def test_a_model_that_does_not_fit_beside_an_idle_one_takes_its_place(tiny_model: TinyModel) -> None:
    folders = [tiny_model("qwen3"), tiny_model("llama")]
    room = max(map(needs, folders)) * 3 // 2
    settings = Settings(models=tuple(map(str, folders)), memory_bytes=room, shutdown_timeout=60.0)
    async with serving(settings) as served:
        before = await answers(served, 2)
        async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any", max_retries=0) as client:
            for _ in range(2):
                completion = await client.completions.create(model="llama", prompt="Hello", max_tokens=3)
                assert completion.choices[0].finish_reason == "length"
                assert await answers(served, 2) == before


async def test_a_model_larger_than_memory_bytes_is_a_507_that_frees_nothing(tiny_model: TinyModel) -> None:
    small, large = tiny_model("qwen3"), tiny_model("llama", intermediate_size=4096)
    room = (needs(small) + load_size(large, detect(large), Settings()).least) // 2
    assert needs(small) < room < needs(large)
    settings = Settings(models=(str(small), str(large)), memory_bytes=room, shutdown_timeout=60.0)
    async with serving(settings) as served:
        before = await answers(served, 2)
        request = {"model": large.name, "prompt": "Hello", "max_tokens": 3}
        for _ in range(3):
            refused = await fetch(served.server, "POST", "/v1/completions", request)
            document = refused.json()
            assert (refused.status, document["error"]["code"]) == (507, "insufficient_memory")
            assert "memory_bytes" in document["detail"]
            members = [document[name] for name in ("required_bytes", "available_bytes", "freed_bytes")]
            assert members == [needs(large), room, 0]
        loaded = (await fetch(served.server, "GET", "/api/ps")).json()["models"]
        assert [model["model"].partition(":")[0] for model in loaded] == ["qwen3"]
        assert await answers(served, 2) == before
