"""Wishes that a model cannot fulfil: listings and headers say so, and the request is answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.http.answering.current_request import NOTICE
from greenroom.schemas.protocols.pool_protocol import Probed, ProbeModel
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.calling_models import CallingModel, make_calling_model
from greenroom.tests.support.servers.http_servers import fetch, serving

USER: Any = [{"role": "user", "content": "What is the weather in Quito?"}]
WISHES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER, "reasoning_effort": "none"},
    "/v1/responses": {"input": USER, "reasoning": {"effort": "none"}},
    "/v1/messages": {"messages": USER, "max_tokens": 64, "thinking": {"type": "disabled"}},
    "/api/chat": {"messages": USER, "think": False},
}
"""Requests for no reasoning, by path."""


@pytest.mark.parametrize("always_thinks", [True, False])
async def test_clients_learn_that_reasoning_cannot_be_switched_off(
    tmp_path: Path, always_thinks: bool
) -> None:
    thought = "<think>\nLet me see.\n</think>\n\n"
    model = CallingModel("thinker", "thinking", "qwen3", "hermes_json", thought, always_thinks)
    folder = make_calling_model(model, tmp_path)
    settings = Settings(models=(str(folder),), db=str(tmp_path / "db"), shutdown_timeout=60.0)
    async with serving(settings) as served:
        before = (await fetch(served.server, "GET", "/v1/models/thinker")).json()
        assert isinstance(await served.system.pool.ask(ProbeModel("thinker"), Probed), Probed)
        after = (await fetch(served.server, "GET", "/v1/models/thinker")).json()
        claude = (await fetch(served.server, "GET", "/v1/models/thinker", anthropic_version="any")).json()
        told = []
        for path, wish in WISHES.items():
            for extra in ({"stream": False}, {"stream": True}, {"store": False}, {"background": True}):
                if path != "/v1/responses" and "stream" not in extra:
                    continue
                answer = await fetch(served.server, "POST", path, {"model": "thinker", **wish, **extra})
                assert answer.status == 200, answer.body
                told.append(answer.headers.get(NOTICE))
        plain = await fetch(
            served.server, "POST", "/v1/chat/completions", {"model": "thinker", "messages": USER}
        )
    assert (before["thinking_switch"], after["thinking_switch"]) == (None, not always_thinks)
    assert claude["capabilities"]["thinking"]["types"]["disabled"]["supported"] is not always_thinks
    notice = "this model's reasoning cannot be switched off" if always_thinks else None
    assert told == [notice] * 10
    assert NOTICE not in plain.headers
