"""Every type of error in every protocol, as its official client reads it over a real socket."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import attrs
import ollama
import openai
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus
from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.servers.http_servers import Served, fetch, serving

Serve = Callable[[Settings], Any]
LONG = "word " * 40_000
USER = [{"role": "user", "content": "Hi"}]


@attrs.frozen
class Seen:
    """An error as the client's exception describes it."""

    status: int
    message: str
    kind: str | None
    code: str | None
    request_id: str | None


# Protocols: paths, requests, and exceptions of their clients


def _openai(create: Callable[[openai.OpenAI, dict[str, Any]], Any]) -> Callable[..., Seen]:
    def ask(address: str, body: dict[str, Any], headers: dict[str, str]) -> Seen:
        with (
            openai.OpenAI(
                base_url=f"{address}/v1", api_key="any", max_retries=0, default_headers=headers
            ) as client,
            pytest.raises(openai.APIStatusError) as failed,
        ):
            create(client, body)
        error = failed.value
        expected = {400: openai.BadRequestError, 403: openai.PermissionDeniedError, 404: openai.NotFoundError}
        fallback = openai.InternalServerError if error.status_code >= 500 else openai.APIStatusError
        assert isinstance(error, expected.get(error.status_code, fallback))
        assert isinstance(error.body, dict)
        assert set(error.body) == {"message", "type", "param", "code"}
        return Seen(error.status_code, error.body["message"], error.type, error.code, error.request_id)

    return ask


def _anthropic(address: str, body: dict[str, Any], headers: dict[str, str]) -> Seen:
    with (
        anthropic.Anthropic(
            base_url=address, api_key="any", max_retries=0, default_headers=headers
        ) as client,
        pytest.raises(anthropic.APIStatusError) as failed,
    ):
        client.messages.create(**body)
    error: Any = failed.value
    assert error.body["type"] == "error"
    inner = error.body["error"]
    assert error.body["request_id"] == error.request_id
    code = inner["details"]["error_code"]
    return Seen(error.status_code, inner["message"], inner["type"], code, error.request_id)


def _ollama(address: str, body: dict[str, Any], headers: dict[str, str]) -> Seen:
    with ollama.Client(address, headers=headers) as client, pytest.raises(ollama.ResponseError) as failed:
        client.chat(**body)
    return Seen(failed.value.status_code, failed.value.error, None, None, None)


@attrs.frozen
class Spoken:
    """A protocol.

    Args:
        ask: Function that sends a body with the official client and returns the error seen.
        prompt: Function from a text to the field with the prompt.
        wrong: A field with a value that is always invalid.
    """

    path: str
    ask: Callable[[str, dict[str, Any], dict[str, str]], Seen]
    prompt: Callable[[str], dict[str, Any]]
    wrong: dict[str, Any]
    fields: dict[str, Any] = attrs.field(factory=dict)


def _messages(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


PROTOCOLS = {
    "chat": Spoken(
        "/v1/chat/completions",
        _openai(lambda client, body: client.chat.completions.create(**body)),
        _messages,
        {"temperature": 9},
    ),
    "completions": Spoken(
        "/v1/completions",
        _openai(lambda client, body: client.completions.create(**body)),
        lambda text: {"prompt": text},
        {"temperature": 9},
    ),
    "responses": Spoken(
        "/v1/responses",
        _openai(lambda client, body: client.responses.create(**body)),
        lambda text: {"input": text, "store": False},
        {"temperature": 9},
    ),
    "messages": Spoken("/v1/messages", _anthropic, _messages, {"max_tokens": -1}, {"max_tokens": 20}),
    "ollama": Spoken(
        "/api/chat", _ollama, _messages, {"options": {"top_p": 9}}, {"stream": False, "think": False}
    ),
}


# Errors: their causes and contents


@attrs.frozen
class Expected:
    """The expected error.

    Args:
        kind: Error type in Anthropic's protocol.
        retry_after: Seconds in retry-after, if retrying helps.
        worth_retrying: True if SDKs should retry; other server errors tell them not to.
    """

    status: int
    code: str
    kind: str
    message: str
    retry_after: str | None = None
    worth_retrying: bool = False


@asynccontextmanager
async def plain(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings) as served:
        yield served


@asynccontextmanager
async def torn(settings: Settings) -> AsyncIterator[Served]:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        yield served


@asynccontextmanager
async def draining(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings) as served:
        await served.system.drain()
        yield served


@asynccontextmanager
async def lost(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings) as served:
        served.system.device_lost.set()
        await wait_all_tasks_blocked()
        yield served


@asynccontextmanager
async def full(settings: Settings) -> AsyncIterator[Served]:
    """Run a server whose queue is full until the test ends."""
    settings = attrs.evolve(settings, max_batch=1, max_queue=1)
    faults = Faults(gate=threading.Event())
    assert faults.gate is not None
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        body = {"model": "qwen3", "messages": USER, "max_tokens": 1}
        async with trio.open_nursery() as nursery:
            try:
                ask = partial(fetch, served.server, "POST", "/v1/chat/completions", body)
                # Those who ask below, with a key and without one, each have their share.
                for asker in (ask, partial(ask, authorization="Bearer any")):
                    nursery.start_soon(asker)
                while await _queued(served) < 2:  # noqa: ASYNC110
                    await trio.sleep(0.005)
                yield served
            finally:
                faults.gate.set()


async def _queued(served: Served) -> int:
    status = await served.system.pool.ask(DescribePool(), PoolStatus)
    return sum(model.queue for model in status.models) if isinstance(status, PoolStatus) else 0


def _request(protocol: Spoken, cause: str) -> tuple[dict[str, Any], dict[str, str]]:
    body = {"model": "qwen3", **protocol.prompt("Hi"), **protocol.fields}
    match cause:
        case "a wrong value":
            body |= protocol.wrong
        case "a long prompt":
            body |= protocol.prompt(LONG)
        case "a large body":
            body |= protocol.prompt("a" * (2 * MEGABYTE))
        case "an unknown model":
            body["model"] = "nobody"
        case "another host":
            return body, {"Host": "evil.example"}
        case "a page":
            return body, {"Origin": "https://evil.example"}
    return body, {}


CAUSES: dict[str, tuple[Serve, Expected]] = {
    "a wrong value": (plain, Expected(400, "invalid_value", "invalid_request_error", "must be")),
    "a long prompt": (
        plain,
        Expected(400, "context_length_exceeded", "invalid_request_error", "maximum context length"),
    ),
    "a large body": (plain, Expected(413, "body_too_large", "request_too_large", "larger")),
    "an unknown model": (plain, Expected(404, "model_not_found", "not_found_error", "nobody")),
    "another host": (plain, Expected(403, "host_not_allowed", "permission_error", "evil.example")),
    "a page": (plain, Expected(403, "origin_not_allowed", "permission_error", "evil.example")),
    "torn weights": (torn, Expected(503, "load_failed", "api_error", "could not be loaded")),
    "no memory": (plain, Expected(507, "insufficient_memory", "api_error", "memory")),
    "a shutdown": (
        draining,
        Expected(503, "draining", "overloaded_error", "shutting down", "5", worth_retrying=True),
    ),
    "a lost device": (
        lost,
        Expected(503, "device_lost", "overloaded_error", "started again", "10", worth_retrying=True),
    ),
    "a full queue": (
        full,
        Expected(503, "queue_full", "overloaded_error", "waiting", "2", worth_retrying=True),
    ),
}


def _settings(cause: str, folder: Path) -> Settings:
    settings = Settings(models=(str(folder),), max_body_bytes=MEGABYTE, shutdown_timeout=60.0)
    if cause == "no memory":
        return attrs.evolve(settings, memory_bytes=MEGABYTE)
    return settings


@pytest.mark.parametrize("cause", CAUSES)
async def test_every_protocols_client_reads_what_is_wrong(
    tiny_model: Callable[..., Path], cause: str
) -> None:
    serve, expected = CAUSES[cause]
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve(_settings(cause, tiny_model("qwen3"))))
        for name, protocol in PROTOCOLS.items():
            body, headers = _request(protocol, cause)
            with trio.fail_after(300):
                seen = await trio.to_thread.run_sync(
                    protocol.ask, served.server.address, body, headers, abandon_on_cancel=True
                )
            assert seen.status == expected.status, name
            assert expected.message in seen.message, name
            if name == "messages":
                assert (seen.kind, seen.code) == (expected.kind, expected.code)
            elif name != "ollama":
                assert seen.code == expected.code, name
            assert (seen.request_id or "").startswith("req_") or name == "ollama"
            await _check_document(served, protocol, body, headers, expected)


async def _check_document(
    served: Served, protocol: Spoken, body: dict[str, Any], headers: dict[str, str], expected: Expected
) -> None:
    """Check the parts that clients hide: RFC 9457's members, and the retry hints."""
    host = headers.get("Host", "localhost")
    others = {name.lower(): value for name, value in headers.items() if name != "Host"}
    answer = await fetch(served.server, "POST", protocol.path, body, host=host, **others)
    document = answer.json()
    assert answer.status == document["status"] == expected.status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"] == answer.headers["request-id"]
    assert document["instance"].endswith(answer.headers["x-request-id"])
    assert document["title"]
    assert expected.message in document["detail"]
    wait = answer.headers.get("retry-after")
    assert wait == expected.retry_after
    should_not = expected.status >= 500 and not expected.worth_retrying
    assert answer.headers.get("x-should-retry") == ("false" if should_not else None)


# Errors after the response head


def _chunks(create: Callable[[openai.OpenAI, dict[str, Any]], Any]) -> Callable[..., str]:
    def read(address: str, body: dict[str, Any], begun: threading.Event) -> str:
        with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
            stream = create(client, body)
            begun.set()
            with pytest.raises(openai.APIError) as failed:
                list(stream)
        assert not isinstance(failed.value, openai.APIStatusError)
        assert failed.value.code == "load_failed"
        return failed.value.message

    return read


def _response(address: str, body: dict[str, Any], begun: threading.Event) -> str:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        stream = client.responses.create(**body)
        begun.set()
        *_, last = stream
    assert last.type == "response.failed"
    assert last.response.error.code == "server_error"
    return str(last.response.error.message)


def _message(address: str, body: dict[str, Any], begun: threading.Event) -> str:
    with anthropic.Anthropic(base_url=address, api_key="any", max_retries=0) as client:
        stream = client.messages.create(**body)
        begun.set()
        with pytest.raises(anthropic.APIError) as failed:
            list(stream)
    return str(failed.value)


def _lines(address: str, body: dict[str, Any], begun: threading.Event) -> str:
    with ollama.Client(address) as client:
        begun.set()  # This client sends its request only when the stream is read.
        with pytest.raises(ollama.ResponseError) as failed:
            list(client.chat(**body))
    return failed.value.error


STREAMS: dict[str, Callable[[str, dict[str, Any], threading.Event], str]] = {
    "chat": _chunks(lambda client, body: client.chat.completions.create(**body)),
    "completions": _chunks(lambda client, body: client.completions.create(**body)),
    "responses": _response,
    "messages": _message,
    "ollama": _lines,
}


@pytest.mark.parametrize("name", STREAMS)
async def test_what_fails_after_the_headers_is_the_end_of_the_stream(
    tiny_model: Callable[..., Path], name: str
) -> None:
    settings = _settings("torn weights", tiny_model("qwen3"))
    faults = Faults(load={"qwen3": RuntimeError("torn weights")}, gate=threading.Event())
    protocol, begun = PROTOCOLS[name], threading.Event()
    body = {"model": "qwen3", **protocol.prompt("Hi"), **protocol.fields, "stream": True}
    engines = FaultyEngines(settings, faults)
    async with (
        serving(settings, engines=engines, status_timeout=0.1) as served,
        trio.open_nursery() as nursery,
    ):

        async def open_gate() -> None:
            await trio.to_thread.run_sync(begun.wait)
            assert faults.gate is not None
            faults.gate.set()

        nursery.start_soon(open_gate)
        with trio.fail_after(300):
            told = await trio.to_thread.run_sync(
                STREAMS[name], served.server.address, body, begun, abandon_on_cancel=True
            )
    assert "could not be loaded" in told
