"""The whole server on a real socket, driven by the official OpenAI client, with real tiny models."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import openai
import pytest
import trio
from quart_trio import QuartTrio

import greenroom.http.answering.event_stream
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.settings import Settings
from greenroom.tests.support.actor_systems import Faults, FaultyEngines, state, status
from greenroom.tests.support.http_servers import Served, connected, fetch, serving

T = TypeVar("T")
TinyModel = Callable[..., Path]
CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Tell me about the sea"}


@pytest.fixture
def settings(tiny_model: TinyModel) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")), str(tiny_model("llama"))), shutdown_timeout=60.0)


async def ask(served: Served, call: Callable[[openai.OpenAI], T], retries: int = 0) -> T:
    """Let the synchronous client do something on a thread of its own."""

    def on_thread() -> T:
        with openai.OpenAI(base_url=served.base_url, api_key="any", max_retries=retries) as client:
            return call(client)

    with trio.fail_after(300):
        return await trio.to_thread.run_sync(on_thread)


def body(**fields: Any) -> dict[str, Any]:
    """A greedy request for a few tokens."""
    return {"model": "qwen3", "messages": [USER], "temperature": 0, "max_tokens": 12, **fields}


async def stream_of(served: Served, **fields: Any) -> list[Any]:
    """All chunks of a streamed chat."""
    return await ask(
        served, lambda client: list(client.chat.completions.create(**body(stream=True, **fields)))
    )


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_a_streamed_answer_is_the_whole_answer(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = await ask(served, lambda client: client.chat.completions.create(**body()))
        assert whole.model == "qwen3"
        assert whole.usage
        assert whole.usage.completion_tokens == 12
        assert whole.choices[0].finish_reason == "length"
        assert whole._request_id
        assert whole._request_id.startswith("req_")
        chunks = await stream_of(served, stream_options={"include_usage": True})
        assert text_of(chunks) == whole.choices[0].message.content
        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.choices[0].delta.role is None for chunk in chunks[1:-1])
        assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
        assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + [
            "length"
        ]
        assert chunks[-1].choices == []
        usage = chunks[-1].usage
        assert usage is not None
        assert usage.completion_tokens_details == whole.usage.completion_tokens_details
        assert usage.prompt_tokens == whole.usage.prompt_tokens
        assert usage.total_tokens == whole.usage.total_tokens
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens in range(usage.prompt_tokens)
        assert all(chunk.usage is None for chunk in await stream_of(served))


async def test_the_asynchronous_client_streams_too(settings: Settings) -> None:
    async with serving(settings) as served:

        async def several() -> list[str]:
            async with openai.AsyncOpenAI(base_url=served.base_url, api_key="any") as client:

                async def one() -> str:
                    chunks = await client.chat.completions.create(**body(stream=True))
                    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

                return list(await asyncio.gather(*(one() for _ in range(6))))

        with trio.fail_after(300):
            texts = await trio.to_thread.run_sync(asyncio.run, several())
        assert len(set(texts)) == 1
        assert texts[0] == text_of(await stream_of(served))


async def test_stop_strings_end_an_answer_without_showing(settings: Settings) -> None:
    async with serving(settings) as served:
        whole = text_of(await stream_of(served, max_tokens=None, max_completion_tokens=24))
        stop = whole[len(whole) // 2 :][:3]
        chunks = await stream_of(served, max_tokens=24, stop=[stop])
        assert text_of(chunks) == whole[: whole.index(stop)]
        assert chunks[-1].choices[0].finish_reason == "stop"


async def test_content_and_roles_come_in_several_forms(settings: Settings) -> None:
    async with serving(settings) as served:
        plain = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one two"}]
        parts = [
            {"role": "developer", "content": [{"type": "text", "text": "be brief"}]},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
        ]
        said = [text_of(await stream_of(served, messages=messages)) for messages in (plain, parts)]
        assert said[0] == said[1]
        assert said[0] != text_of(await stream_of(served))


async def test_default_means_the_first_model(settings: Settings) -> None:
    async with serving(settings) as served:
        answer = await ask(served, lambda client: client.chat.completions.create(**body(model="default")))
        assert answer.model == "qwen3"
        assert answer.choices[0].message.content == text_of(await stream_of(served))


async def test_completions_continue_text_and_tokens(settings: Settings) -> None:
    async with serving(settings) as served:

        def complete(prompt: Any, **fields: Any) -> Any:
            fields = {"temperature": 0, **fields}
            return lambda client: client.completions.create(model="qwen3", prompt=prompt, **fields)

        one = await ask(served, complete("The sea"))
        assert one.object == "text_completion"
        assert one.usage.completion_tokens == 16
        several = await ask(served, complete(["The sea", "A hill"]))
        assert [choice.index for choice in several.choices] == [0, 1]
        assert several.choices[0].text == one.choices[0].text != several.choices[1].text
        assert several.usage.completion_tokens == 32
        echoed = await ask(served, complete("The sea", echo=True))
        assert echoed.choices[0].text == "The sea" + one.choices[0].text
        tokens = await ask(served, complete([[5, 6, 7], [5, 6, 7]], max_tokens=5))
        assert tokens.choices[0].text == tokens.choices[1].text
        texts = {0: "", 1: ""}
        for chunk in await ask(
            served, lambda client: list(complete(["The sea", "A hill"], stream=True)(client))
        ):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        assert texts == {choice.index: choice.text for choice in several.choices}
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(served, complete([[5], [10**9]]))
        assert (refused.value.param or "").startswith("prompt")


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


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_keep_their_status(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:

        async def asked(**fields: Any) -> None:
            request = body(stream=stream, **fields)
            await ask(served, lambda client: client.chat.completions.create(**request))

        with pytest.raises(openai.NotFoundError, match="qwen3") as missing:
            await asked(model="qwen")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="maximum context length") as overflow:
            await asked(messages=[{"role": "user", "content": "word " * 100_000}])
        assert overflow.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as unmatched:
            await asked(messages=[USER, {"role": "tool", "tool_call_id": "call_x", "content": "1"}])
        assert (unmatched.value.param or "").startswith("messages[1]")
        assert unmatched.value.response.headers["content-type"] == "application/problem+json"
        assert unmatched.value.request_id


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
        ({"temperature": 9}, "temperature"),
        ({"n": 0}, "n"),
        ({"seed": "one"}, "seed"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
    ],
)
async def test_bad_requests_are_400_and_name_the_field(
    settings: Settings, fields: dict[str, Any], param: str
) -> None:
    async with serving(settings) as served:
        with pytest.raises(openai.BadRequestError) as refused:
            await ask(served, lambda client: client.chat.completions.create(**body(**fields)))
        assert refused.value.param == param
        assert isinstance(refused.value.body, dict)
        assert set(refused.value.body) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_cannot_be_loaded_is_a_503_that_is_not_retried(
    settings: Settings, stream: bool
) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        request = body(stream=stream)
        with pytest.raises(openai.InternalServerError, match="could not be loaded") as failed:
            await ask(served, lambda client: client.chat.completions.create(**request), retries=2)
        assert (failed.value.status_code, failed.value.code) == (503, "load_failed")
        assert faults.loads == ["qwen3"]


@asynccontextmanager
async def slow_to_load(settings: Settings, faults: Faults) -> AsyncIterator[Served]:
    """A server whose model loads when the test says so, and whose clients wait 0.2 s for a status."""
    faults.gate = threading.Event()
    async with serving(settings, engines=FaultyEngines(settings, faults), status_timeout=0.2) as served:
        try:
            yield served
        finally:
            faults.gate.set()


async def test_a_stream_opens_while_its_model_loads_and_is_kept_alive(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greenroom.http.answering.event_stream, "HEARTBEAT", 0.05)
    faults = Faults()
    async with slow_to_load(settings, faults) as served, connected(served.server) as client:
        await client.request("POST", CHAT, json.dumps(body(stream=True)).encode())
        assert b" 200 " in await client.read_until(b"\r\n\r\n")
        for _ in range(4):
            assert b'"content":""' in await client.read_until(b"\n\n")
        assert faults.gate is not None
        faults.gate.set()
        told = await client.read_until(b"data: [DONE]\n\n")
        assert told.count(b'"finish_reason":"length"') == 1


async def test_what_fails_after_the_headers_is_an_event(settings: Settings) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with slow_to_load(settings, faults) as served:
        opened: list[Any] = []

        def read(client: openai.OpenAI) -> None:
            stream = client.chat.completions.create(**body(stream=True))
            assert faults.gate is not None
            faults.gate.set()
            opened.extend(stream)

        with pytest.raises(openai.APIError, match="could not be loaded") as failed:
            await ask(served, read)
        assert not isinstance(failed.value, openai.APIStatusError)
        assert failed.value.code == "load_failed"


async def test_a_crash_ends_its_own_streams_only_and_the_next_request_works(settings: Settings) -> None:
    faults = Faults()
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        await stream_of(served)
        bystander: list[Any] = []

        async def stand_by() -> None:
            bystander.extend(await stream_of(served, model="llama", max_tokens=200))

        async with connected(served.server) as client, trio.open_nursery() as nursery:
            nursery.start_soon(stand_by)
            await client.request("POST", CHAT, json.dumps(body(stream=True, max_tokens=400)).encode())
            head = await client.read_until(b"\r\n\r\n")
            faults.crash.add(head.decode().lower().split("x-request-id: ")[1].split()[0])
            told = await client.read_until(b"data: [DONE]\n\n")
            assert b'"code":"model_crashed"' in told
            assert b'"finish_reason":"' not in told
        assert bystander[-1].choices[0].finish_reason == "length"
        assert text_of(await stream_of(served))


@pytest.mark.parametrize("stream", [True, False])
async def test_hanging_up_stops_the_model(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:
        async with connected(served.server) as client:
            await client.request("POST", CHAT, json.dumps(body(stream=stream, max_tokens=None)).encode())
            if stream:
                await client.read_until(b'"content":"')
            await running(served, 1)
        await running(served, 0)
        assert await state(served.system.pool, "qwen3") is ModelState.READY


async def running(served: Served, requests: int) -> None:
    """Wait until the model generates for that many."""
    with trio.fail_after(300):
        while (await status(served.system.pool, "qwen3")).running != requests:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_draining_server_is_not_ready_and_refuses(settings: Settings) -> None:
    async with serving(settings) as served:
        assert (await fetch(served.server, "GET", "/readyz")).status == 200
        await served.system.drain()
        answer = await fetch(served.server, "GET", "/readyz")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        refused = await fetch(served.server, "POST", CHAT, body())
        assert (refused.status, refused.json()["error"]["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        assert (await fetch(served.server, "GET", "/livez")).status == 200


async def test_a_full_queue_is_refused_with_a_time_to_retry(settings: Settings) -> None:
    settings = attrs.evolve(settings, max_batch=1, max_queue=1)
    faults = Faults()
    async with slow_to_load(settings, faults) as served, trio.open_nursery() as nursery:
        refused = []

        async def one() -> None:
            answer = await fetch(served.server, "POST", CHAT, body(max_tokens=2))
            if answer.status != 200:
                refused.append(answer)
                assert faults.gate is not None
                faults.gate.set()

        for _ in range(4):
            nursery.start_soon(one)
    assert refused
    assert {answer.status for answer in refused} == {503}
    assert refused[0].json()["error"]["code"] == "queue_full"
    assert refused[0].headers["retry-after"] == "2"


async def test_an_answer_may_take_longer_than_quarts_time_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = {**QuartTrio.default_config, "RESPONSE_TIMEOUT": 0.01}
    monkeypatch.setattr(QuartTrio, "default_config", limited)
    async with serving(settings) as served:
        chunks = await stream_of(served, max_tokens=200)
        assert chunks[-1].choices[0].finish_reason == "length"


async def test_a_failure_of_one_of_several_prompts_is_the_whole_requests(settings: Settings) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        request = {"model": "qwen3", "prompt": ["one", "two"]}
        whole = await fetch(served.server, "POST", "/v1/completions", request)
        assert (whole.status, whole.json()["error"]["code"]) == (503, "load_failed")
        streamed = await fetch(served.server, "POST", "/v1/completions", {**request, "stream": True})
        assert b'"code":"load_failed"' in streamed.body
        assert streamed.body.endswith(b"data: [DONE]\n\n")
