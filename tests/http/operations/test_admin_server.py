"""News of models and lines of the log, followed by an operator of a real server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest

from greenroom.http.operations.admin_server import effective_settings
from greenroom.http.process.log_configuration import LINES, LONGEST, LogRing
from greenroom.http.settings.check_value import FIELDS
from greenroom.schemas.settings.settings import ModelSettings, Settings
from greenroom.tests.support.actors.stored_records import unusable_default_database
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers import server_processes
from greenroom.tests.support.servers.http_servers import RawClient, Served, connected, fetch, serving

EVENTS = "/admin/events"


@asynccontextmanager
async def following(served: Served, path: str = EVENTS) -> AsyncIterator[RawClient]:
    """Open a stream of events, up to its head."""
    async with connected(served.server) as client:
        await client.request("GET", path)
        assert b"200" in await client.read_until(b"\r\n")
        await client.read_until(b"\r\n\r\n")
        yield client


async def next_event(client: RawClient) -> tuple[str, dict[str, Any]]:
    await client.read_until(b"event: ")
    name = (await client.read_until(b"\n")).decode().strip()
    await client.read_until(b"data: ")
    return name, json.loads(await client.read_until(b"\n"))


async def events_until(client: RawClient, stage: str) -> list[tuple[str, dict[str, Any]]]:
    found = [await next_event(client)]
    while found[-1][1].get("stage") != stage:
        found.append(await next_event(client))
    return found


async def test_loads_evictions_and_failures_are_told_with_stage_and_fraction(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    source = tiny_model("llama")
    for file in source.iterdir():
        data = file.read_bytes()
        (broken / file.name).write_bytes(data[: len(data) // 2] if file.suffix == ".safetensors" else data)
    folders = str(tiny_model("qwen3")), str(source), str(broken)
    settings = Settings(models=folders, max_loaded_models=1, shutdown_timeout=60.0)
    async with serving(settings) as served, following(served) as client:
        await fetch(served.server, "POST", "/admin/models/load", {"model": "qwen3"})
        loaded = await events_until(client, "ready")
        assert {(name, event["model"]) for name, event in loaded} == {("load", "qwen3")}
        fractions = [event["fraction"] for _, event in loaded if "fraction" in event]
        assert fractions == sorted(fractions)
        assert (fractions[0], fractions[-1]) == (0.0, 1.0)
        assert all(event["time"] > 1e9 for _, event in loaded)
        await fetch(served.server, "POST", "/admin/models/load", {"model": "llama"})
        seen = await events_until(client, "ready")
        evicted = next(event for name, event in seen if name == "eviction")
        assert (evicted["model"], evicted["for"]) == ("qwen3", "llama")
        freed = next(event for name, event in seen if name == "unload" and event["stage"] == "idle")
        assert freed["freed_bytes"] > 0
        assert (await fetch(served.server, "POST", "/admin/models/load", {"model": "broken"})).status >= 400
        name, failed = (await events_until(client, "failed"))[-1]
        assert (name, failed["model"]) == ("load", "broken")
        assert failed["detail"]
        async with following(served) as late:
            present = [(await next_event(late))[1] for _ in range(3)]
            assert {event["model"] for event in present} == {"qwen3", "llama", "broken"}
            # Each has the time at which it happened, not that of the question.
            times = {event["model"]: event["time"] for event in present}
            assert times["llama"] == pytest.approx(seen[-1][1]["time"], abs=0.5)
            assert times["broken"] == pytest.approx(failed["time"], abs=0.5)


async def test_a_stream_of_events_does_not_hold_up_the_end_of_the_server() -> None:
    async with serving(Settings(db=":memory:", shutdown_timeout=600.0)) as served:
        async with (
            following(served) as events,
            following(served, "/admin/logs") as logs,
            following(served, "/admin/audit?follow=true") as audit,
        ):
            await served.system.drain()
            assert (await next_event(events))[1]["code"] == "draining"
            for stream in (logs, audit):
                assert await stream.read_until(b"0\r\n\r\n")
        late = await fetch(served.server, "GET", EVENTS)
        assert b'"code":"draining"' in late.body


async def test_a_question_for_the_head_of_the_news_has_an_end(server_without_model: Served) -> None:
    async with connected(server_without_model.server) as client:
        for path in (EVENTS, "/admin/logs"):
            await client.request("HEAD", path)
            assert (await client.read_until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await client.request("GET", "/livez")
        assert (await client.receive_response()).status == 200


def logged(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


@pytest.mark.deep
def test_the_log_of_a_process_is_read_and_followed() -> None:
    with (
        server_processes.serving("--db", ":memory:") as server,
        httpx2.Client(base_url=server.address, timeout=60) as client,
    ):
        with client.stream("GET", "/admin/logs") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = logged(response.iter_lines())
            assert any(line["event"] == "listening" for line in lines)
            client.post("/v1/completions", json={"model": "default", "prompt": "A", "max_tokens": 1})
            admitted = next(line for line in lines if line["event"] == "request admitted")
            assert admitted["level"] == "info"
            assert admitted["request_id"].startswith("req_")
        last = client.get("/admin/logs", params={"lines": 1, "follow": "false"})
        assert len(list(logged(iter(last.text.splitlines())))) == 1
        for query in ("lines=-1", "lines=x", "follow=maybe"):
            assert client.get(f"/admin/logs?{query}").status_code == 400


def test_the_ring_keeps_the_last_lines_and_cuts_long_ones() -> None:
    ring = LogRing()
    for number in range(LINES + 10):
        event = {"event": "step", "number": number, "_record": object()}
        assert ring.record(None, "info", event) is event
    lines, position = ring.after(0)
    assert (len(lines), position) == (LINES, LINES + 10)
    assert json.loads(lines[0]) == {"event": "step", "number": 10}
    assert ring.after(position) == ([], position)
    ring.record(None, "info", {"event": "x" * 100_000, "level": "info"})
    ring.record(None, "info", {"event": "odd", "what": object(), "not": float("nan")})
    no_string: Any = ("no", "string")
    ring.record(None, "info", {"event": "key", no_string: 1})
    (long, odd, key), _ = ring.after(position)
    assert len(long) <= LONGEST
    assert json.loads(long)["cut"] is True
    assert "odd" in json.loads(odd)["event"]
    assert json.loads(key)["event"] == "key"


@pytest.mark.parametrize("name", ["events", "logs", "requests", "settings", "models"])
async def test_no_route_for_operators_answers_a_proxy(server_without_model: Served, name: str) -> None:
    refused = await fetch(server_without_model.server, "GET", f"/admin/{name}", x_forwarded_for="192.0.2.1")
    assert (refused.status, refused.json()["error"]["code"]) == (403, "loopback_only")


async def test_every_setting_is_shown_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    settings = Settings(
        max_batch=3,
        shutdown_timeout=20.0,
        model_settings=(("org/name", ModelSettings(pinned=True)),),
        origins=(("max_batch", "flag"), ("model_settings", "file")),
    )
    async with serving(settings) as served:
        answer = await fetch(served.server, "GET", "/admin/settings")
    shown = {each["name"]: each for each in answer.json()["settings"]}
    assert shown.keys() == {*FIELDS, "HF_TOKEN"}
    assert (shown["max_batch"]["value"], shown["max_batch"]["source"]) == (3, "flag")
    assert shown["model_settings"]["value"] == [["org/name", {"pinned": True}]]
    assert (shown["port"]["source"], shown["memory_bytes"]["set"]) == ("default", False)
    assert shown["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "value": None,
        "source": "environment",
        "secret": True,
        "set": True,
    }
    assert b"very_secret" not in answer.body


def test_a_secret_setting_keeps_its_value() -> None:
    @attrs.frozen
    class Keyed(Settings):
        key: str | None = attrs.field(default=None, metadata={"meaning": "A key.", "secret": True})

    for value, is_set in (("swordfish", True), (None, False)):
        [shown] = [each for each in effective_settings(Keyed(key=value)) if each.name == "key"]
        assert (shown.value, shown.secret, shown.set) == (None, True, is_set)


async def test_the_status_counts_models_and_says_what_does_not_work(
    tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = unusable_default_database(monkeypatch, tmp_path)
    settings = Settings(models=(str(tiny_model("qwen3")),), db=database, shutdown_timeout=60.0)
    async with serving(settings) as served:
        new = (await fetch(served.server, "GET", "/admin/status")).json()
        # The keys are read at the start, so that a broken database is noticed then.
        assert (new["status"], new["models"], new["model_bytes"]) == ("degraded", {}, 0)
        assert (new["version"], new["pid"]) == (version("greenroom"), os.getpid())
        assert new["started_at"] <= time.time()
        body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        assert (await fetch(served.server, "POST", "/v1/chat/completions", body)).status == 200
        assert (await fetch(served.server, "POST", "/v1/conversations", {})).status == 503
        used = (await fetch(served.server, "GET", "/admin/status")).json()
        assert (used["status"], used["models"]) == ("degraded", {"ready": 1})
        assert used["memory_limit"] > used["model_bytes"] > 0
        assert (used["audit"], used["inspector"]) == (True, False)
        assert used["uptime"] > new["uptime"]
        assert "it is no file" in used["problems"][0]
