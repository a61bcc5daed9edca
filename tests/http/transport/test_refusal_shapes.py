"""Refusals before routing have the format of the client's protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anthropic
import ollama
import openai
import pytest
import trio

from greenroom.http.transport.request_head import client_of_head
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app
from greenroom.tests.support.servers.http_servers import Server, connected, fetch, running

MESSAGES = [{"role": "user", "content": "a"}]


def openai_error(server: Server) -> tuple[int, str, str | None]:
    with (
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0) as client,
        pytest.raises(openai.InternalServerError) as refused,
    ):
        client.chat.completions.create(model="m", messages=MESSAGES)  # type: ignore[arg-type]
    return refused.value.status_code, refused.value.message, refused.value.request_id


def anthropic_error(server: Server) -> tuple[int, str, str | None]:
    with (
        anthropic.Anthropic(base_url=server.address, api_key="any", max_retries=0) as client,
        pytest.raises(anthropic.APIStatusError) as refused,
    ):
        client.messages.create(model="m", messages=MESSAGES, max_tokens=1)
    body: Any = refused.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "overloaded_error")
    return refused.value.status_code, str(body["error"]["message"]), refused.value.request_id


def ollama_error(server: Server) -> tuple[int, str, str | None]:
    with pytest.raises(ollama.ResponseError) as refused:
        ollama.Client(server.address).chat("m", MESSAGES)
    return refused.value.status_code, refused.value.error, None


@pytest.mark.parametrize("ask", [openai_error, anthropic_error, ollama_error])
async def test_a_client_over_the_limit_reads_why(
    ask: Callable[[Server], tuple[int, str, str | None]],
) -> None:
    async with running(make_app(), Settings(max_connections=1)) as server, connected(server) as first:
        await first.request("GET", "/")
        await first.receive_response()
        with trio.fail_after(300):
            status, message, request_id = await trio.to_thread.run_sync(ask, server)
        assert status == 503
        assert "connections" in message
        assert request_id or ask is ollama_error


async def test_a_client_that_says_nothing_is_refused_all_the_same() -> None:
    async with running(make_app(), Settings(max_connections=1)) as server, connected(server) as first:
        await first.request("GET", "/")
        await first.receive_response()
        async with connected(server) as silent:
            with trio.fail_after(300):
                refused = await silent.receive_response()
            assert refused.status == 503
            assert refused.json()["error"]["code"] == "too_many_connections"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", {"message", "type", "param", "code"}),
        ("/v1/messages?beta=true", {"type", "message", "details"}),
        ("/api/chat", str),
    ],
)
async def test_a_head_that_is_refused_has_its_protocols_shape(path: str, shape: object) -> None:
    async with running(make_app(), Settings()) as server:
        refused = await fetch(server, "GET", path, **{f"x-{i}": "y" for i in range(300)})
        assert refused.status == 431
        error = refused.json()["error"]
        assert isinstance(error, str) if shape is str else set(error) == shape


@pytest.mark.parametrize(
    ("head", "path", "names"),
    [
        (b"", "", []),
        (b"GET", "", []),
        (b"\x16\x03\x01\x00", "", []),
        (b"GET /a?b HTTP/1.1\r\nHost: x\r\nanthropic-ver", "/a", ["Host"]),
        (b"POST http://x:1/v1/messages HTTP/1.1\r\na: 1\r\nb: \x01\r\n\r\nc: 2\r\n", "/v1/messages", ["a"]),
    ],
)
def test_what_is_there_of_a_head_is_read(head: bytes, path: str, names: list[str]) -> None:
    found, headers = client_of_head(head)
    assert (found, list(headers.keys())) == (path, names)
