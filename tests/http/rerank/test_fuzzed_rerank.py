"""Slightly invalid rerank requests: each is answered without a server error."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import connected, serving
from greenroom.tests.support.spoiled.spoiled_bodies import count, spoil

RERANK: dict[str, Any] = {
    "query": "who walks",
    "documents": ["the man", {"text": "\ud83e the garden \x00", "title": "t"}, ""],
    "top_n": 2,
    "return_documents": True,
    "max_tokens_per_doc": 5,
    "max_chunks_per_doc": 1,
    "rank_fields": ["text"],
    "truncation": True,
}
SCORE: dict[str, Any] = {"text_1": "who", "text_2": ["the man", "🦊"], "truncate_prompt_tokens": -1}
BODIES = (("/v1/rerank", RERANK), ("/v2/rerank", RERANK), ("/v1/score", SCORE))


@pytest.mark.parametrize("kind", ["bert-rerank", pytest.param("qwen3-rerank", marks=pytest.mark.deep)])
@pytest.mark.parametrize("requests", [120, pytest.param(5_000, marks=pytest.mark.soak)])
async def test_every_request_is_answered(tiny_encoder: Callable[..., Path], kind: str, requests: int) -> None:
    source = Random(requests)
    statuses: Counter[tuple[str, int]] = Counter()
    async with (
        serving(Settings(models=(str(tiny_encoder(kind)),))) as served,
        connected(served.server, seconds=300) as client,
    ):
        for number in range(requests):
            path, right = BODIES[number % len(BODIES)]
            right = json.loads(json.dumps({"model": "default", **right}))
            if path == "/v1/rerank":  # documents may be objects
                right["documents"] = [right["documents"][1]] * 2
                right["rank_fields"] = ["title", "text"]
            elif path == "/v2/rerank":
                right["instruction" if kind == "qwen3-rerank" else "user"] = "Find men."
            body = right if number < len(BODIES) else spoil(right, source, 1 / count(right))
            await client.request("POST", path, json.dumps(body).encode())
            answer = await client.receive_response()
            said = f"{path} {json.dumps(body)}: {answer.status} {answer.body[-300:]!r}"
            assert answer.status in ((200,) if number < len(BODIES) else (200, 400, 404)), said
            assert b"NaN" not in answer.body, said
            assert b"internal_error" not in answer.body, said
            statuses[path, answer.status] += 1
    assert {path for path, status in statuses if status == 200} == {path for path, _ in BODIES}
    assert sum(found for (_, status), found in statuses.items() if status != 200) > requests / 10
