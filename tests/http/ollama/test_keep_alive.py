"""Ollama's `keep_alive`: durations, and what they do to a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import ollama
import pytest

from greenroom.actors.requests.generation import Generation
from greenroom.http.ollama.request import parse_keep_alive
from greenroom.schemas.events.events import TextDelta
from greenroom.schemas.messages.requests import KeepAlive
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.actor_systems import chat, eventually, state, until
from greenroom.tests.support.clients.ollama_clients import ask
from greenroom.tests.support.servers.http_servers import Served, serving

GREEDY: Any = {"temperature": 0, "num_predict": 3}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0.0),
        ("0", 0.0),
        ("0s", 0.0),
        (-0.0, 0.0),
        (300, 300.0),
        (1.5, 1.5),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("+250ms", 0.25),
        (".5s", 0.5),
        (-1, None),
        ("-1s", None),
        (float("inf"), None),
        (10**400, None),
    ],
)
def test_durations_are_read_as_ollama_reads_them(value: Any, seconds: float | None) -> None:
    assert parse_keep_alive(value) == KeepAlive(seconds)
    assert parse_keep_alive(None) is None


@pytest.mark.parametrize(
    "value", ["", "5", "m", "5 m", "soon", "1h30", "-", True, [], {}, float("nan"), "9" * 99 + "s"]
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_keep_alive(value)
    assert (caught.value.problem.status, caught.value.problem.param) == (400, "keep_alive")


async def test_the_list_of_running_models_tells_when_they_expire(settings: Settings) -> None:
    async def expires_in(served: Served) -> float:
        [model] = (await ask(served, lambda client: client.ps())).models
        left: timedelta = model.expires_at - datetime.now(UTC)
        return left.total_seconds()

    def load(wish: Any, client: Any) -> None:
        client.generate("llama", "", keep_alive=wish)

    century = 100 * 365 * 86_400
    ttl = (("llama", ModelSettings(ttl=500.0)),)
    async with serving(attrs.evolve(settings, model_settings=ttl)) as served:
        for wish, least, most in (
            (None, 400, 500), ("5m", 200, 300), (1e300, century, math.inf), (-1, century, math.inf),
        ):  # fmt: skip
            await ask(served, partial(load, wish))
            assert least < await expires_in(served) <= most
        asked = chat("llama", max_tokens=20_000)
        asked = attrs.evolve(asked, client="127.0.0.1#key", keep_alive=KeepAlive(300.0))
        with Generation(served.system.pool, asked) as running:
            await until(running, TextDelta)
            assert 200 < await expires_in(served) <= 300


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("llama")),), shutdown_timeout=60.0)


async def test_a_model_is_kept_and_unloaded_as_a_client_of_ollama_asks(settings: Settings) -> None:
    async with serving(settings) as served:
        pool = served.system.pool

        async def unloaded() -> bool:
            return await state(pool, "llama") is ModelState.IDLE

        async def generate(keep_alive: Any, prompt: str = "Hello") -> ollama.GenerateResponse:
            return await ask(
                served,
                lambda client: client.generate("llama", prompt, options=GREEDY, keep_alive=keep_alive),
            )

        assert (await generate(-1)).done_reason == "length"
        assert await state(pool, "llama") is ModelState.READY
        assert (await generate(0)).done_reason == "length"
        await eventually(unloaded)
        assert (await generate("0.2s")).done_reason == "length"
        await eventually(unloaded)
        assert (await generate(None)).done_reason == "length"  # no wish: as the operator has set it
        stopped = await generate(0, "")
        assert (stopped.done, stopped.done_reason, stopped.response) == (True, "unload", "")
        await eventually(unloaded)
