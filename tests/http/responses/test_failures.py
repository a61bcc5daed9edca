"""Failures over a real socket, before and after a response begins."""

from __future__ import annotations

import json
import threading
from typing import Any

import openai
import pytest

import greenroom.http.answering.event_stream
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.clients.openai_clients import ask
from greenroom.tests.support.clients.response_events import read_events
from greenroom.tests.support.servers.http_servers import RawClient, connected, serving

PATH = "/v1/responses"
ASKED = {"model": "qwen3", "input": "one two three", "store": False, "temperature": 0, "stream": True}


async def rest_of(client: RawClient, before: bytes = b"") -> list[dict[str, Any]]:
    """Return all events of a chunked stream, from the bytes already read and the rest."""
    received = before + await client.read_until(b"data: [DONE]\n\n")
    blocks = [b"event: " + part.split(b"\n\n")[0] for part in received.split(b"event: ")[1:]]
    return read_events(b"\n\n".join((*blocks, b"data: [DONE]", b"")))


async def test_a_stream_opens_while_its_model_loads_and_is_kept_alive(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greenroom.http.answering.event_stream, "HEARTBEAT", 0.05)
    faults = Faults(gate=threading.Event())
    async with (
        serving(settings, engines=FaultyEngines(settings, faults), status_timeout=0.2) as served,
        connected(served.server) as client,
    ):
        await client.request("POST", PATH, json.dumps({**ASKED, "max_output_tokens": 8}).encode())
        assert b" 200 " in await client.read_until(b"\r\n\r\n")
        before = b""
        for _ in range(5):
            before += await client.read_until(b"\n\n")
        assert faults.gate is not None
        faults.gate.set()
        events = await rest_of(client, before)
    kinds = [event["type"] for event in events]
    assert kinds[:5] == ["response.created", *["response.in_progress"] * 4]
    assert kinds[-1] == "response.incomplete"


async def test_a_crash_ends_the_response_as_failed(settings: Settings) -> None:
    faults = Faults(crash={"one two three"})
    async with (
        serving(settings, engines=FaultyEngines(settings, faults)) as served,
        connected(served.server) as client,
    ):
        await client.request("POST", PATH, json.dumps({**ASKED, "max_output_tokens": 400}).encode())
        await client.read_until(b"\r\n\r\n")
        events = await rest_of(client)
        response = events[-1]["response"]
        assert events[-1]["type"] == "response.failed"
        assert response["status"] == "failed"
        assert response["error"]["code"] == "server_error"
        assert "qwen3" in response["error"]["message"]
        begun = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
        assert [item["id"] for item in response["output"]] == begun
        answer = await ask(
            served,
            lambda openai_client: openai_client.responses.create(
                model="qwen3", input="one", max_output_tokens=4, store=False
            ),
        )
        assert answer.usage


async def test_a_model_that_cannot_be_loaded_is_a_503(settings: Settings) -> None:
    faults = Faults(load={"qwen3": RuntimeError("torn weights")})
    async with serving(settings, engines=FaultyEngines(settings, faults)) as served:
        with pytest.raises(openai.InternalServerError, match="could not be loaded") as failed:
            await ask(served, lambda client: client.responses.create(model="qwen3", input="one", store=False))
        assert (failed.value.status_code, failed.value.code) == (503, "load_failed")
