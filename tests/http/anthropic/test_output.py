"""Prefix cache usage in responses to Anthropic's clients and others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import attrs
import pytest
import trio
from quart import Response
from quart_trio import QuartTrio

import greenroom.http.answering.event_stream
from greenroom.http.answering.protocols import answer_errors
from greenroom.http.anthropic.message_stream import asks_to_cache, error_members
from greenroom.http.app import PROTOCOLS
from greenroom.http.transport.request_connection import RequestConnection
from greenroom.schemas.problems import Problem, ProblemError, draining, queue_full
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.clients.anthropic_clients import MESSAGES, USER, arguments, ask, body
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, running, serving

MARK = {"cache_control": {"type": "ephemeral"}}
WORDS = "The sea is wide and deep. " * 12
TEXT = {"type": "text", "text": WORDS}


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), shutdown_timeout=10.0)


async def usage_of(served: Served, block: dict[str, Any], stream: bool, **fields: Any) -> Any:
    body: Any = {
        "model": "qwen3",
        "max_tokens": 3,
        "messages": [{"role": "user", "content": [block]}],
        "extra_body": {"temperature": 0},
        **fields,
    }

    def create(client: Any) -> Any:
        if not stream:
            return client.messages.create(**body).usage
        with client.messages.stream(**body) as events:
            return events.get_final_message().usage

    return await ask(served, create)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_kept_of_a_marked_prompt_is_what_the_next_one_finds(
    settings: Settings, stream: bool
) -> None:
    async with serving(settings) as served:
        first = await usage_of(served, {**TEXT, **MARK}, stream)
        again = await usage_of(served, {**TEXT, **MARK}, stream)
        unmarked = await usage_of(served, {"type": "text", "text": f"A hill. {WORDS}"}, stream)
    assert first.cache_read_input_tokens == 0
    assert first.cache_creation_input_tokens == again.cache_read_input_tokens > 32
    assert again.cache_creation_input_tokens == 0
    assert first.input_tokens == again.input_tokens == 1
    # Without a cache marker, all prompt tokens count as input.
    assert unmarked.cache_creation_input_tokens == 0
    assert unmarked.input_tokens > 32


async def test_without_a_cache_nothing_is_kept(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, prefix_cache_bytes=0)) as served:
        for _ in range(2):
            usage = await usage_of(served, {**TEXT, **MARK}, stream=False)
            assert (usage.cache_creation_input_tokens, usage.cache_read_input_tokens) == (0, 0)


async def test_other_clients_are_told_the_same(settings: Settings) -> None:
    async with serving(settings) as served:
        body = {"model": "qwen3", "max_tokens": 3, "messages": [{"role": "user", "content": WORDS}]}
        chats = [(await fetch(served.server, "POST", "/v1/chat/completions", body)).json() for _ in range(2)]
    first, again = (chat["usage"]["prompt_tokens_details"] for chat in chats)
    assert first["cache_write_tokens"] == again["cached_tokens"] > 32
    assert again["cache_write_tokens"] == first["cached_tokens"] == 0


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({}, False),
        ({"cache_control": {"type": "ephemeral"}}, True),
        ({"cache_control": None, "tools": [{"name": "a"}]}, False),
        ({"tools": [{"name": "a"}, {"name": "b", **MARK}]}, True),
        ({"system": "text"}, False),
        ({"system": [TEXT, {**TEXT, **MARK}]}, True),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [MARK]}]}]}, True),
        ({"messages": [{"role": "user", "content": "text"}, 5]}, False),
    ],
)
def test_marks_are_found_wherever_they_may_stand(body: Any, asked: bool) -> None:
    assert asks_to_cache(body) == asked


MATRIX = {
    400: ("invalid_request_error", anthropic.BadRequestError),
    401: ("authentication_error", anthropic.AuthenticationError),
    402: ("billing_error", anthropic.PaymentRequiredError),
    403: ("permission_error", anthropic.PermissionDeniedError),
    404: ("not_found_error", anthropic.NotFoundError),
    405: ("invalid_request_error", anthropic.APIStatusError),
    408: ("timeout_error", anthropic.RequestTimeoutError),
    413: ("request_too_large", anthropic.ContentTooLargeError),
    415: ("invalid_request_error", anthropic.APIStatusError),
    429: ("rate_limit_error", anthropic.RateLimitError),
    500: ("api_error", anthropic.InternalServerError),
    501: ("api_error", anthropic.HTTPNotImplementedError),
    503: ("api_error", anthropic.ServiceUnavailableError),
    504: ("timeout_error", anthropic.GatewayTimeoutError),
    507: ("api_error", anthropic.InternalServerError),
    529: ("overloaded_error", anthropic.OverloadedError),
}


def refusing_app() -> QuartTrio:
    """Return an application that answers `POST /v1/messages` with the status given as the model's name."""
    app = QuartTrio(__name__, static_folder=None)
    app.asgi_http_class = RequestConnection
    answer_errors(app, PROTOCOLS)

    @app.before_request
    async def name_request() -> None:
        from quart import request

        request.scope["state"]["request_id"] = "req_1"

    @app.post(MESSAGES)
    async def refuse() -> Response:
        from quart import request

        status = int((await request.get_json())["model"])
        raise ProblemError(Problem(status, "some_code", "It is so.", "some.field"))

    return app


async def test_every_status_is_the_error_that_the_client_has_a_class_for() -> None:
    def refusals(client: Any) -> dict[int, tuple[str | None, type[Exception]]]:
        seen = {}
        for status in MATRIX:
            with pytest.raises(anthropic.APIStatusError) as refused:
                client.messages.create(**arguments(model=str(status)))
            error = refused.value
            assert (error.error_code, error.api_message) == ("some_code", "It is so.")
            assert error.response.headers["content-type"] == "application/problem+json"
            document: Any = error.body
            assert (document["status"], document["detail"]) == (status, "It is so.")
            assert document["request_id"] == "req_1"
            assert document["error"]["details"]["param"] == "some.field"
            seen[status] = (error.type, type(error))
        return seen

    async with running(refusing_app(), Settings()) as server:
        address = server.address

        def on_thread() -> Any:
            with anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client:
                return refusals(client)

        assert await trio.to_thread.run_sync(on_thread) == MATRIX


def test_what_may_be_gone_in_a_moment_is_an_overload() -> None:
    for problem in (draining(), queue_full("m", 3, 2)):
        assert error_members(problem, "r")["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/messages/nowhere", {}, 404),
        ("/v1/complete", {"anthropic_version": "2023-06-01"}, 404),
        ("/v1/models/nobody", {"anthropic_version": "2023-06-01"}, 404),
        ("/v1/models?limit=0", {"anthropic_version": "2023-06-01"}, 400),
        (MESSAGES, {}, 405),
    ],
)
async def test_errors_of_every_path_of_the_client_have_its_shape(
    server_without_model: Served, path: str, headers: dict[str, str], status: int
) -> None:
    answer = await fetch(server_without_model.server, "GET", path, **headers)
    document = answer.json()
    assert (answer.status, document["type"], document["status"]) == (status, "error", status)
    assert document["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_keep_their_status(settings: Settings, stream: bool) -> None:
    async with serving(settings) as served:

        async def create(**fields: Any) -> None:
            await ask(served, lambda client: client.messages.create(**arguments(stream=stream, **fields)))

        with pytest.raises(anthropic.NotFoundError, match="qwen3"):
            await create(model="qwen")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
        with pytest.raises(anthropic.BadRequestError, match="it takes no images"):
            await create(messages=[{"role": "user", "content": [image]}])
        with pytest.raises(anthropic.BadRequestError, match=r"too long: \d+ tokens > \d+ maximum"):
            await create(messages=[{"role": "user", "content": "word " * 100_000}])


async def test_a_stream_pings_while_its_model_loads_and_tells_what_fails_then(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greenroom.http.answering.event_stream, "HEARTBEAT", 0.05)
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    faults.gate = threading.Event()
    async with serving(settings, engines=FaultyEngines(settings, faults), status_timeout=0.2) as served:
        try:
            async with connected(served.server) as client:
                await client.request("POST", MESSAGES, json.dumps(body(stream=True)).encode())
                assert b" 200 " in await client.read_until(b"\r\n\r\n")
                for _ in range(3):
                    await client.read_until(b'event: ping\ndata: {"type":"ping"')
            opened = []

            def read(client: Any) -> None:
                stream = client.messages.create(**arguments(stream=True))
                opened.append(stream)
                assert faults.gate is not None
                faults.gate.set()
                list(stream)

            with pytest.raises(anthropic.APIStatusError, match="could not be loaded") as failed:
                await ask(served, read)
        finally:
            faults.gate.set()
    assert opened
    assert failed.value.error_code == "load_failed"
    assert failed.value.type == "api_error"


async def test_a_crash_in_the_middle_is_an_error_event_and_the_next_request_works(settings: Settings) -> None:
    faults = Faults(crash={"Crash"})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        async with connected(served.server) as client:
            asked = body(stream=True, messages=[{"role": "user", "content": "Crash"}])
            await client.request("POST", MESSAGES, json.dumps(asked).encode())
            await client.read_until(b"content_block_delta")
            received = await client.read_until(b"event: error\n")
            assert b"message_stop" not in received
            assert b'"error_code":"model_crashed"' in await client.read_until(b"\n\n")
        message = await ask(served, lambda client: client.messages.create(**arguments(messages=[USER])))
        assert message.content[0].text


@pytest.mark.parametrize(
    ("path", "block"),
    [
        ("content", {"type": "tool_result", "tool_use_id": "a", "content": {"type": "text", "text": "rain"}}),
        (
            "source.content",
            {"type": "document", "source": {"type": "content", "content": {"type": "text", "text": "rain"}}},
        ),
        ("content", {"type": "search_result", "source": "a", "title": "b", "content": {"type": "text"}}),
    ],
)
async def test_one_block_is_no_list_of_blocks_and_is_not_lost(
    settings: Settings, path: str, block: dict[str, Any]
) -> None:
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    messages = [USER, call, {"role": "user", "content": [block]}]
    async with serving(settings) as served:
        answer = await fetch(served.server, "POST", MESSAGES, body(messages=messages))
    assert (answer.status, answer.json()["error"]["details"]["param"]) == (
        400,
        f"messages[2].content[0].{path}",
    )


async def test_a_schema_that_cannot_be_held_is_named_as_it_was_sent(settings: Settings) -> None:
    too_many = {"type": "object", "properties": {"a": {"type": "array", "minItems": 10**6}}}
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"name": "f", "strict": True, "input_schema": too_many},
    ]
    async with serving(settings) as served:
        answer = await fetch(served.server, "POST", MESSAGES, body(tools=tools))
    param = answer.json()["error"]["details"]["param"]
    assert (answer.status, param) == (400, "tools[1].input_schema.properties.a.minItems")
