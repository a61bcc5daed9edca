"""Ollama's API over a real socket, with Ollama's own client and with raw requests of other clients."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs
import ollama
import pydantic
import pytest

from greenroom.engine.adapters.adapter import Adapter
from greenroom.engine.adapters.conversation import render_calls
from greenroom.engine.parsers.parser import ParsedCall
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.testing import ScriptedEngines
from greenroom.tests.support.clients.ollama_clients import ask
from greenroom.tests.support.servers.http_servers import Served, fetch, serving
from greenroom.tests.support.servers.shared_servers import Shared

MESSAGES = [{"role": "user", "content": "Weather in Rom and Oslo?"}]
GREEDY = {"num_predict": 12, "temperature": 0.0, "num_ctx": 2048, "typical_p": 1.0, "repeat_last_n": 64}


def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: Where.
    """
    return f"rain in {city}"


def calling(adapter: Adapter) -> str:
    calls = [ParsedCall("weather", json.dumps({"city": city})) for city in ("Rom", "Oslo")]
    return "<think>\nTwo cities.\n</think>\n\nOne moment.\n" + render_calls(adapter.tool_parser, calls)


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=60.0)


async def test_a_stream_is_the_whole_answer_in_pieces(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    whole = await ask(
        served, lambda client: client.chat("qwen3:latest", MESSAGES, think=False, options=GREEDY)
    )
    pieces = await ask(
        served,
        lambda client: list(client.chat("qwen3:latest", MESSAGES, think=False, options=GREEDY, stream=True)),
    )
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert whole.message.content
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    last = pieces[-1]
    assert (whole.done_reason, last.done_reason, whole.eval_count, last.eval_count) == (
        "length",
        "length",
        12,
        12,
    )
    assert (whole.model, last.model) == ("qwen3:latest", "qwen3:latest")
    assert whole.prompt_eval_count == last.prompt_eval_count > 0
    assert whole.total_duration >= whole.eval_duration > 0


async def test_a_prompt_is_answered_with_the_template_or_raw(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    asked: Any = {"model": "llama", "prompt": "The sea", "options": GREEDY}
    raw = await ask(served, lambda client: client.generate(**asked, raw=True))
    body = {"model": "llama", "prompt": "The sea", "max_tokens": 12, "temperature": 0}
    same = await fetch(served.server, "POST", "/v1/completions", body)
    templated = await ask(served, lambda client: client.generate(**asked, system="Be brief."))
    pieces = await ask(served, lambda client: list(client.generate(**asked, raw=True, stream=True)))
    assert raw.response == same.json()["choices"][0]["text"] == "".join(piece.response for piece in pieces)
    assert templated.prompt_eval_count > raw.prompt_eval_count


async def test_calls_and_thoughts_come_as_objects(settings: Settings) -> None:
    async with serving(settings, engines=ScriptedEngines(settings, calling)) as served:
        whole = await ask(served, lambda client: client.chat("qwen3", MESSAGES, tools=[weather], think=True))
        pieces = await ask(
            served,
            lambda client: list(client.chat("qwen3", MESSAGES, tools=[weather], think=True, stream=True)),
        )
    streamed = [call for piece in pieces for call in piece.message.tool_calls or ()]
    for calls in (whole.message.tool_calls, streamed):
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            ("weather", {"city": "Rom"}),
            ("weather", {"city": "Oslo"}),
        ]
    assert whole.message.thinking.strip() == "Two cities."
    assert "".join(piece.message.thinking or "" for piece in pieces) == whole.message.thinking
    assert whole.message.content.strip() == "One moment."
    assert (whole.done_reason, pieces[-1].done_reason) == ("stop", "stop")


async def test_a_schema_and_the_word_json_are_held(settings: Settings, shared: Shared) -> None:
    class Weather(pydantic.BaseModel):
        """The schema of an answer."""

        rain: bool
        kind: Literal["rain", "snow"]

    served = shared(settings)
    asked: Any = {"model": "qwen3", "messages": MESSAGES, "think": False}
    answer = await ask(served, lambda client: client.chat(**asked, format=Weather.model_json_schema()))
    cut = await ask(
        served,
        lambda client: client.chat(**asked, format="json", options={"num_predict": 20, "temperature": 0}),
    )
    Weather.model_validate_json(answer.message.content)
    assert cut.message.content.lstrip().startswith("{")


async def test_models_are_listed_shown_and_loaded(settings: Settings) -> None:
    async with serving(settings) as served:
        listed = await ask(served, lambda client: client.list())
        shown = await ask(served, lambda client: client.show("qwen3"))
        version = await fetch(served.server, "GET", "/api/version")
        loaded = await ask(served, lambda client: client.generate("llama"))
        states = {str(model.key): model.state.name for model in (await pool_status(served)).models}
    assert [model.model for model in listed.models] == ["qwen3", "llama"]
    assert all(model.size > 0 and model.details.family == model.model for model in listed.models)
    assert {"completion", "tools", "thinking"} == set(shown.capabilities)
    assert shown.modelinfo["qwen3.context_length"] > 0
    assert "{%" in shown.template
    assert version.json()["version"].count(".") == 2
    assert (loaded.done, loaded.done_reason, loaded.response) == (True, "load", "")
    assert states["llama"] == "READY"


async def pool_status(served: Served) -> PoolStatus:
    status = await served.system.pool.ask(DescribePool(), PoolStatus)
    assert isinstance(status, PoolStatus)
    return status


async def test_errors_have_ollamas_shape(settings: Settings, shared: Shared) -> None:
    served = shared(settings)
    with pytest.raises(ollama.ResponseError, match="Did you mean llama") as caught:
        await ask(served, lambda client: client.chat("lama", MESSAGES))
    assert caught.value.status_code == 404
    for path, body, status, named in (
        ("/api/chat", {"messages": []}, 400, "model"),
        (
            "/api/chat",
            {"model": "llama", "messages": [{"role": "user", "images": ["aa"]}]},
            400,
            "images",
        ),
        ("/api/chat", {"model": "llama", "messages": [], "keep_alive": "0 s"}, 400, "keep_alive"),
        ("/api/chat", {"model": "llama", "messages": MESSAGES, "keep_alive": True}, 400, "keep_alive"),
        ("/api/chat", {"model": "lama", "messages": [], "keep_alive": 0}, 404, "llama"),
        ("/api/chat", {"model": "llama", "messages": MESSAGES, "think": "much"}, 400, "think"),
        ("/api/generate", {"model": "llama", "prompt": "a", "suffix": "b"}, 400, "suffix"),
        (
            "/api/generate",
            {"model": "llama", "prompt": "a", "options": {"top_p": 7}},
            400,
            "options.top_p",
        ),
        ("/api/generate", {"model": "llama", "prompt": "a", "options": {"mirostat": 1}}, 400, "mirostat"),
        ("/api/show", {}, 400, "model"),
        ("/api/copy", {"source": "llama", "destination": "mine"}, 501, "[profiles.NAME]"),
        ("/api/push", {"model": "llama"}, 501, "come from the hub"),
        ("/api/pull", {"model": "llama"}, 400, "OWNER/NAME"),
        ("/api/embed", {"model": "llama", "input": "a"}, 400, "texts to embed"),
    ):
        answer = await fetch(served.server, "POST", path, body)
        assert answer.status == status, (path, body, answer)
        assert named in answer.json()["error"]
    assert (await fetch(served.server, "GET", "/api/nothing")).json()["error"]


async def test_clients_in_other_languages_send_null_and_any_case(settings: Settings) -> None:
    async with serving(
        attrs.evolve(settings, model_settings=(("llama", ModelSettings(alias=("llama3:latest",))),))
    ) as served:
        # Ollama's Go client sends a nil list as null.
        loaded = await fetch(served.server, "POST", "/api/chat", {"model": "llama", "messages": None})
        assert loaded.json()["done_reason"] == "load"
        shouted = [{"role": "User", "content": "a"}]
        options: Any = {"stream": False, "options": GREEDY}
        body = {"model": "llama3:latest", "messages": shouted, **options}
        answer = await fetch(served.server, "POST", "/api/chat", body)
        listed = await ask(served, lambda client: [model.model for model in client.list().models])
        shown = [await fetch(served.server, "POST", "/api/show", {"model": name}) for name in listed]
    assert (answer.status, answer.json()["eval_count"]) == (200, 12)
    assert listed == ["qwen3", "llama", "llama3:latest"]
    assert [answer.status for answer in shown] == [200, 200, 200]


async def test_a_body_of_any_type_is_json_unless_a_browser_sends_it(
    settings: Settings, shared: Shared
) -> None:
    body = json.dumps({"model": "llama", "prompt": "a", "stream": False, "options": GREEDY}).encode()
    form = "application/x-www-form-urlencoded"
    served = shared(settings)
    for headers, status in (
        ({"content_type": form}, 200),
        ({"content_type": "text/plain"}, 200),
        ({"content_type": form, "origin": "http://evil.example"}, 403),
        ({"content_type": "text/plain", "sec_fetch_site": "cross-site"}, 403),
        ({"content_type": "application/json", "sec_fetch_site": "same-origin"}, 200),
    ):
        answer = await fetch(served.server, "POST", "/api/generate", body, **headers)
        assert answer.status == status, (headers, answer)
    answer = await fetch(served.server, "POST", "/v1/completions", body, content_type=form)
    assert answer.status == 415
