"""Model capabilities in the model lists of every protocol, read by official clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients import anthropic_clients, ollama_clients, openai_clients
from greenroom.tests.support.servers.http_servers import fetch, serving

KINDS = ("text", "embeddings", "rerank")


@pytest.fixture
def settings(tiny_encoder: Callable[..., Path], tiny_model: Callable[..., Path]) -> Settings:
    models = (tiny_model("qwen3"), tiny_encoder("bert"), tiny_encoder("bert-rerank"))
    return Settings(models=(*map(str, models), "org/to-come"), shutdown_timeout=60.0)


async def test_openais_list_carries_the_capabilities_as_a_further_field(settings: Settings) -> None:
    async with serving(settings) as served:
        models = await openai_clients.ask(served, lambda client: list(client.models.list()))
        one = await fetch(served.server, "GET", "/v1/models/bert")
    known: list[Any] = [model.to_dict()["capabilities"] for model in models]
    assert [each["type"] for each in known[:3]] == list(KINDS)
    assert known[3] is None, "what is not here is not known"
    assert known[1]["dimensions"] == 64
    assert known[1] == one.json()["capabilities"]


async def test_anthropics_list_has_all_of_its_keys(settings: Settings) -> None:
    async with serving(settings) as served:
        text, embeds, ranks, unknown = await anthropic_clients.ask(
            served, lambda client: list(client.models.list())
        )
    assert text.capabilities.structured_outputs.supported
    assert text.capabilities.thinking.supported
    assert text.capabilities.thinking.types.between_tools.supported
    assert not text.capabilities.image_input.supported
    assert text.max_input_tokens == text.max_tokens > 0
    for other in (embeds, ranks):
        assert not other.capabilities.structured_outputs.supported
        assert (other.max_input_tokens, other.max_tokens) == (None, None)
    assert unknown.capabilities is None
    expected = anthropic.types.ModelCapabilities.model_fields
    assert set(text.capabilities.model_dump()) == set(expected)


async def test_ollamas_lists_use_its_words(settings: Settings) -> None:
    async with serving(settings) as served:
        shown = await ollama_clients.ask(
            served, lambda client: [client.show(name) for name in ("qwen3", "bert", "bert-rerank")]
        )
        tags = (await fetch(served.server, "GET", "/api/tags")).json()["models"]
        idle = await ollama_clients.ask(served, lambda client: client.ps())
        await fetch(served.server, "POST", "/api/generate", {"model": "qwen3"})
        [loaded] = (await ollama_clients.ask(served, lambda client: client.ps())).models
    assert [set(each.capabilities) for each in shown] == [
        {"completion", "tools", "thinking"}, {"embedding"}, {"rerank"},
    ]  # fmt: skip
    assert [model["capabilities"] for model in tags[:3]] == [each.capabilities for each in shown]
    assert shown[1].modelinfo["bert.embedding_length"] == 64
    assert idle.models == []
    assert (loaded.model, loaded.context_length) == ("qwen3", shown[0].modelinfo["qwen3.context_length"])
    assert loaded.size == loaded.size_vram > 0
    assert loaded.expires_at.year == 9999
