"""Embeddings over a real socket, requested by Ollama's client."""

from __future__ import annotations

import numpy as np
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.ollama_clients import ask
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.servers.http_servers import fetch, serving
from greenroom.tests.support.texts.random_texts import random_texts

TEXTS = random_texts(5)


@pytest.fixture
def settings(tiny_encoder: TinyEncoder) -> Settings:
    return Settings(models=(str(tiny_encoder("bert")),), shutdown_timeout=10.0)


async def test_the_client_gets_the_vectors_of_the_engine(
    settings: Settings, tiny_encoder: TinyEncoder
) -> None:
    async with serving(settings) as served:
        several = await ask(served, lambda client: client.embed("bert", list(TEXTS)))
        one = await ask(served, lambda client: client.embed("bert", TEXTS[0], dimensions=8))
        long = await ask(served, lambda client: client.embed("bert", "hello class " * 200))
        old = await ask(served, lambda client: client.embeddings("bert", TEXTS[0]))
    expected = open_embedder(tiny_encoder("bert")).embed(TEXTS)
    np.testing.assert_allclose(several.embeddings, expected, atol=1e-6)
    np.testing.assert_allclose(old.embedding, expected[0], atol=1e-6)
    assert len(one.embeddings[0]) == 8
    assert long.prompt_eval_count == 128
    assert several.model == "bert"
    assert several.total_duration > 0
    assert several.prompt_eval_count > len(TEXTS)


async def test_a_request_without_text_loads_the_model(settings: Settings) -> None:
    async with serving(settings) as served:
        bodies: tuple[dict[str, object], ...] = ({"input": ""}, {"input": []}, {})
        for body in bodies:
            answer = await fetch(served.server, "POST", "/api/embed", {"model": "bert", **body})
            assert (answer.status, answer.json()) == (200, {"model": "bert", "embeddings": []})
        old = await fetch(served.server, "POST", "/api/embeddings", {"model": "bert"})
        assert (old.status, old.json()) == (200, {"embedding": []})
        for path in ("/api/embed", "/api/embeddings"):
            answer = await fetch(served.server, "POST", path, {"model": "bert", "keep_alive": 0})
            assert answer.status == 200
            answer = await fetch(served.server, "POST", path, {"model": "bert", "keep_alive": "soon"})
            assert answer.status == 400
            assert "`keep_alive`" in answer.json()["error"]


async def test_what_cannot_be_embedded_is_refused_by_name(settings: Settings) -> None:
    async with serving(settings) as served:
        for body, named in (
            ({"input": 5}, "input"),
            ({"input": ["a", 5]}, "input"),
            ({"input": ["a", "hello class " * 200], "truncate": False}, "input[1]"),
            ({"input": "a", "dimensions": 65}, "dimensions"),
            ({"input": "a", "options": []}, "options"),
            ({"input": ["a"] * 16_385}, "input"),
        ):
            answer = await fetch(served.server, "POST", "/api/embed", {"model": "bert", **body})
            assert answer.status == 400
            assert f"`{named}" in answer.json()["error"]
