"""Tests of the inspector over HTTP: what it holds of requests that run, end and fail, and who sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog
import structlog.testing
import trio
from click.testing import CliRunner

from greenroom.http.commands.operate import inspect_command
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

CHAT = "/v1/chat/completions"


@pytest.fixture
def settings(tiny_model: Callable[..., Path]) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), inspect=3, shutdown_timeout=10.0)


def body(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "qwen3", "messages": [{"role": "user", "content": text}], "max_tokens": 5, **fields}


async def inspected(served: Served, query: str = "") -> Any:
    response = await fetch(served.server, "GET", f"/admin/inspect{query}")
    assert response.status == 200, response.body
    assert response.headers["cache-control"] == "no-store"
    return response.json()


async def test_a_request_is_shown_from_its_body_to_its_figures(settings: Settings) -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(settings) as served:
            answered = await fetch(served.server, "POST", CHAT, body("Where is the zebra?", n=2))
            rendered = await fetch(served.server, "POST", "/tokenize", body("Where is the zebra?"))
            shown = await inspected(served, f"?id={answered.headers['x-request-id']}")
    usage, tokens = answered.json()["usage"], rendered.json()["tokens"]
    assert (shown["state"], shown["status"], shown["route"]) == ("finished", 200, f"POST {CHAT}")
    assert "Where is the zebra?" in shown["body"]
    assert "Where is the zebra?" in shown["prompt"]
    assert shown["tokens"] == tokens
    assert [output["index"] for output in shown["outputs"]] == [0, 1]
    assert sum(len(output["tokens"]) for output in shown["outputs"]) == usage["completion_tokens"]
    assert shown["events"][-1]["type"] == "Finished"
    assert shown["explanation"]["prefix"]["reason"] == shown["figures"]["prefix_end"] == "first"
    assert shown["figures"]["prompt_tokens"] == usage["prompt_tokens"] == len(tokens)
    assert "zebra" not in str([line for line in lines if line["log_level"] != "debug"])


async def test_requests_that_run_or_fail_are_shown_too(settings: Settings) -> None:
    async with serving(settings) as served:
        refused = await fetch(served.server, "POST", CHAT, body("Hello", temperature="warm"))
        async with connected(served.server) as client:
            streamed = body("Count", stream=True, max_tokens=20_000, ignore_eos=True)
            await client.request("POST", CHAT, json.dumps(streamed).encode())
            for _ in range(3):  # tokens have come
                await client.read_until(b"data: ")
            with trio.fail_after(300):
                while not (listed := (await inspected(served))["requests"])[0]["events"]:
                    await trio.lowlevel.checkpoint()
            running = await inspected(served, f"?id={listed[0]['serial']}")
        with trio.fail_after(300):
            while (await inspected(served, f"?id={running['id']}"))["state"] == "running":
                await trio.lowlevel.checkpoint()
        left = await inspected(served, f"?id={running['id']}")
        failed = await inspected(served, f"?id={refused.headers['x-request-id']}")
    assert running["state"] == "running"
    assert left["figures"]["reason"] == "cancelled"
    assert left["figures"]["generated_tokens"] == len(left["outputs"][0]["tokens"]) > 0
    assert (failed["state"], failed["status"]) == ("failed", 400)
    assert "warm" in failed["body"]
    assert "temperature" in failed["failure"]


async def test_only_the_last_requests_are_kept(settings: Settings) -> None:
    async with serving(settings) as served:
        for number in range(5):
            await fetch(served.server, "POST", CHAT, body(f"Number {number}"))
        listed = (await inspected(served))["requests"]
        missing = await fetch(served.server, "GET", "/admin/inspect?id=1")
        known = (await inspected(served, "?id=5"))["body"]
        printed = await trio.to_thread.run_sync(
            lambda: CliRunner().invoke(inspect_command, ["5", "--url", served.server.address])
        )
    assert [each["serial"] for each in listed] == [5, 4, 3]
    assert missing.status == 404
    assert "Number 4" in known
    assert printed.exit_code == 0, printed.output
    assert "Number 4" in printed.output
    assert "raw output 0" in printed.output


async def test_without_the_setting_nothing_is_kept(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, inspect=0)) as served:
        response = await fetch(served.server, "GET", "/admin/inspect")
        assert served.system.refs.inspector is None
    assert response.status == 404
    assert "--inspect" in response.json()["detail"]


async def test_nobody_else_is_shown_requests(settings: Settings) -> None:
    async with serving(settings) as served:
        forwarded = {"x-forwarded-for": "10.0.0.1"}
        response = await fetch(served.server, "GET", "/admin/inspect", **forwarded)
    assert response.status == 403
