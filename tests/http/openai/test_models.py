"""The list of models over a real socket, read by OpenAI's client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import openai
import pytest

from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.servers.http_servers import fetch, serving

TinyModel = Callable[..., Path]


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=10.0)


async def test_models_are_listed_in_the_order_they_were_named(settings: Settings) -> None:
    async with serving(settings) as served:
        listed = await ask(served, lambda client: list(client.models.list()))
        assert [model.id for model in listed] == ["qwen3", "llama"]
        assert all(model.object == "model" and model.created > 0 and model.owned_by for model in listed)
        assert (await ask(served, lambda client: client.models.retrieve("llama"))).id == "llama"
        assert (await ask(served, lambda client: client.models.retrieve("default"))).id == "qwen3"
        for path in ("/v1/models/lama", "/v1/models/org/lama", "/v1/models/org%2Flama"):
            answer = await fetch(served.server, "GET", path)
            assert (answer.status, answer.json()["error"]["code"]) == (404, "model_not_found")
        with pytest.raises(openai.NotFoundError, match="Did you mean llama"):
            await ask(served, lambda client: client.models.retrieve("lama"))


async def test_an_id_with_a_slash_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    async with serving(Settings(models=("org/name",))) as served:
        for path in ("/v1/models/org/name", "/v1/models/org%2Fname", "/v1/models/default"):
            answer = await fetch(served.server, "GET", path)
            assert (answer.status, answer.json()["id"]) == (200, "org/name")


async def test_aliases_and_patterns_are_answered_by_the_model_that_they_mean(settings: Settings) -> None:
    aliases = (("llama", "gpt-4o"), ("default", "claude-*"))
    tables = tuple((name, ModelSettings(alias=(alias,))) for name, alias in aliases)
    async with serving(attrs.evolve(settings, model_settings=tables)) as served:
        listed = await ask(served, lambda client: list(client.models.list()))
        assert [model.id for model in listed] == ["qwen3", "llama", "gpt-4o"]
        for name, model in (("gpt-4o", "llama"), ("claude-opus-9", "qwen3"), ("llama", "llama")):
            assert (await fetch(served.server, "GET", f"/v1/models/{name}")).json()["id"] == model
            body = {"model": name, "prompt": "a", "max_tokens": 1}
            answer = await fetch(served.server, "POST", "/v1/completions", body)
            assert (answer.status, answer.json()["model"]) == (200, model)
