"""The operator's default parameters for requests, and upper limits that no request can exceed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

PROMPT = "import os"


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    """Return settings with a model whose makers recommend no parameters."""
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=60.0)


async def complete(served: Served, **fields: Any) -> dict[str, Any]:
    body = {"model": "qwen3", "prompt": PROMPT, **fields}
    answer = await fetch(served.server, "POST", "/v1/completions", body)
    assert answer.status == 200, answer.body
    decoded: dict[str, Any] = answer.json()
    return decoded


async def texts(served: Served, **fields: Any) -> set[str]:
    """Return the set of answers with three seeds."""
    return {(await complete(served, seed=seed, **fields))["choices"][0]["text"] for seed in (1, 2, 3)}


@pytest.mark.deep
async def test_a_sampling_setting_holds_until_a_request_says_otherwise(settings: Settings) -> None:
    async with serving(settings) as served:
        greedy = await texts(served, temperature=0)
        sampled = await texts(served)
    assert len(greedy) == 1
    assert len(sampled) == 3
    choices: list[tuple[str, Any, Any]] = [
        ("temperature", 0.0, 1.0),
        ("top_p", 1e-6, 1.0),
        ("top_k", 1, 0),
        ("min_p", 1.0, 0.0),
    ]
    for name, deterministic, free in choices:
        async with serving(attrs.evolve(settings, **{name: deterministic})) as served:
            assert await texts(served) == greedy, name
            assert await texts(served, **{name: free}) == sampled, name


async def test_max_tokens_of_the_settings_end_answers_until_a_request_says_otherwise(
    settings: Settings,
) -> None:
    async with serving(settings) as served:
        assert (await complete(served))["usage"]["completion_tokens"] == 16
    async with serving(attrs.evolve(settings, max_tokens=5)) as served:
        for fields, length in (({}, 5), ({"max_tokens": 9}, 9)):
            answer = await complete(served, **fields)
            assert answer["usage"]["completion_tokens"] == length
            assert answer["choices"][0]["finish_reason"] == "length"


async def test_max_context_bounds_prompt_and_answer_together(settings: Settings) -> None:
    async with serving(settings) as served:
        assert (await complete(served, max_tokens=100, seed=1))["usage"]["completion_tokens"] == 100
    async with serving(attrs.evolve(settings, max_context=64)) as served:
        answer = await complete(served, max_tokens=100, seed=1)
        assert answer["usage"]["total_tokens"] == 64
        assert answer["choices"][0]["finish_reason"] == "length"
        whole = {"model": "qwen3", "prompt": list(range(300, 364))}
        refused = await fetch(served.server, "POST", "/v1/completions", whole)
        assert (refused.status, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert "maximum context length is 64 tokens" in refused.json()["detail"]
