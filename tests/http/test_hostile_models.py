"""Hostile model folders: each gets a 503 with the reason, and all other models answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.hostile.model_folders import HOSTILE, make_hostile
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

CHAT = "/v1/chat/completions"


async def ask(served: Served, model: str, prompt: str = "Hello") -> tuple[int, str, str]:
    """Return status, error code and message of an answer."""
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": 2}
    got = await fetch(served.server, "POST", CHAT, body)
    error = got.json().get("error", {})
    return got.status, error.get("code", ""), error.get("message", "")


@pytest.mark.deep
async def test_a_hostile_model_is_refused_by_name_and_no_other_model_notices(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    plain = tiny_model("qwen3")
    names = {name: name.replace(" ", "-") for name in HOSTILE}
    folders = [make_hostile(name, plain, tmp_path / model) for name, model in names.items()]
    settings = Settings(models=(str(plain), *map(str, folders)), shutdown_timeout=60.0)
    async with serving(settings) as served:
        for name, model in names.items():
            hostile = HOSTILE[name]
            status, code, message = await ask(served, model, hostile.prompt)
            assert (status, code) == (503, hostile.code), (name, message)
            assert hostile.said in message, (name, message)
            ready = await fetch(served.server, "GET", "/readyz")
            assert ready.status == 200, (name, ready.body)
        assert (await ask(served, "qwen3"))[0] == 200
        described = await fetch(served.server, "GET", "/v1/models")
        assert described.status == 200
        crashed = "a-tokenizer-that-panics"
        assert (await ask(served, crashed))[0] == 200, "another thread prepares what follows"
