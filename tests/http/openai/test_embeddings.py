"""Embeddings over a real socket, requested by OpenAI's client."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import openai
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.openai_clients import ask, ask_together
from greenroom.tests.support.clients.web_socket_clients import until_closed
from greenroom.tests.support.engines.embedders import open_embedder
from greenroom.tests.support.engines.watched_engines import WatchedEngines
from greenroom.tests.support.models.tiny_encoders import TinyEncoder
from greenroom.tests.support.servers.http_servers import connected, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared
from greenroom.tests.support.texts.random_texts import random_texts

TEXTS = random_texts(30)


@pytest.fixture
def settings(tiny_encoder: TinyEncoder) -> Settings:
    return Settings(models=(str(tiny_encoder("bert")), str(tiny_encoder("qwen3"))), shutdown_timeout=10.0)


def create(model: str, texts: Any, **fields: Any) -> Callable[[openai.OpenAI], Any]:
    """Return a call that requests embeddings."""
    return lambda client: client.embeddings.create(model=model, input=texts, **fields)


def vectors(answer: Any) -> Any:
    """Return the vectors of an answer, `[texts, dimensions]`."""
    assert [entry.index for entry in answer.data] == list(range(len(answer.data)))
    return np.array([entry.embedding for entry in answer.data], np.float32)


@pytest.mark.parametrize("model", ["bert", "qwen3"])
async def test_clients_get_the_vectors_of_the_engine(
    settings: Settings, shared: Shared, tiny_encoder: TinyEncoder, model: str
) -> None:
    served = shared(settings)
    # By default, the client requests base64 and decodes it.
    usual = await ask(served, create(model, list(TEXTS)))
    floats = await ask(served, create(model, list(TEXTS), encoding_format="float"))
    cut = await ask(served, create(model, TEXTS[0], dimensions=16))
    expected = open_embedder(tiny_encoder(model)).embed(TEXTS)
    np.testing.assert_allclose(vectors(usual), expected, atol=1e-6)
    np.testing.assert_array_equal(vectors(usual), vectors(floats))
    assert vectors(cut).shape == (1, 16)
    assert abs(np.linalg.norm(vectors(cut)) - 1) < 1e-5
    assert usual.object == "list"
    assert usual.data[0].object == "embedding"
    assert usual.model == model
    assert usual.usage.prompt_tokens == usual.usage.total_tokens > len(TEXTS)


async def test_tokens_and_prompts(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    one = await ask(served, create("qwen3", [50, 51]))
    two = await ask(served, create("qwen3", [[50, 51], [52]]))
    assert (one.usage.prompt_tokens, two.usage.prompt_tokens) == (2, 3)
    np.testing.assert_allclose(vectors(one)[0], vectors(two)[0], atol=1e-5)
    plain = await ask(served, create("qwen3", "hello"))
    query = await ask(served, create("qwen3", "hello", extra_body={"input_type": "query"}))
    told = await ask(served, create("qwen3", "hello", extra_body={"instruction": "Find code"}))
    assert query.usage.prompt_tokens > told.usage.prompt_tokens > plain.usage.prompt_tokens


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [[1], [True]]}, "input"),
        ({"input": [[1.5]]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [[2, 3], [2, 10**9]]}, "input[1][1]"),
        ({"input": "a", "dimensions": 65}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": "8"}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "input_type": "poem"}, "input_type"),
        ({"input": "a", "instruction": "Find code"}, "instruction"),
        ({"input": "a", "truncate": "START"}, "truncate"),
        ({"input": "a", "truncate": 0}, "truncate"),
        ({"input": "a", "truncate": []}, "truncate"),
        ({"input": ["a", "hello class " * 100]}, "input[1]"),
        ({"input": ["a"] * 16_385}, "input"),
        ({}, "input"),
    ],
)
async def test_what_cannot_be_embedded_is_refused_by_name(
    settings: Settings, shared: Shared, fields: dict[str, Any], param: str
) -> None:
    served = shared(settings)
    answer = await fetch(served.server, "POST", "/v1/embeddings", {"model": "bert", **fields})
    assert answer.status == 400, answer.body
    assert answer.json()["error"]["param"] == param


async def test_models_of_other_kinds_refuse(settings: Settings, tiny_model: Callable[..., Path]) -> None:
    chats = attrs.evolve(settings, models=(*settings.models, str(tiny_model("llama"))))
    async with serving(chats) as served:
        for path, body in (
            ("/v1/embeddings", {"model": "llama", "input": "a"}),
            ("/v1/chat/completions", {"model": "bert", "messages": [{"role": "user", "content": "a"}]}),
            ("/v1/completions", {"model": "bert", "prompt": "a"}),
            ("/v1/responses", {"model": "bert", "input": "a"}),
        ):
            answer = await fetch(served.server, "POST", path, body)
            assert (answer.status, answer.json()["error"]["code"]) == (400, "unsupported_model_type")


async def test_requests_side_by_side_get_their_own_vectors(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    together = await ask_together(served, *(create("bert", text) for text in TEXTS[:12]))
    at_once = await ask(served, create("bert", list(TEXTS[:12])))
    np.testing.assert_allclose(
        np.concatenate([vectors(answer) for answer in together]), vectors(at_once), atol=1e-5
    )


async def test_a_client_that_leaves_frees_its_slot(settings: Settings) -> None:
    engines, small = WatchedEngines(settings), {"model": "bert", "input": "hello"}
    async with serving(attrs.evolve(settings, max_batch=1), engines=engines) as served:
        assert (await fetch(served.server, "POST", "/v1/embeddings", small)).status == 200
        assert engines.engine is not None
        engines.engine.go_on.clear()
        async with connected(served.server) as client:
            body = {**small, "input": ["hello class value"] * 1_000}
            await client.request("POST", "/v1/embeddings", json.dumps(body).encode())
            engine = await engines.standing()
        await until_closed(served)
        engine.go_on.set()
        assert (await fetch(served.server, "POST", "/v1/embeddings", small)).status == 200
