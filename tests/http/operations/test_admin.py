"""The audit under load: requests of every protocol, kind and ending at once, each exactly one true row."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
import structlog.testing
import trio

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.clients.web_socket_clients import open_socket
from greenroom.tests.support.engines.watched_engines import until
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving
from greenroom.tests.support.spoiled.spoiled_kinds import form_request

AT_ONCE = 6
CHAT = "/v1/chat/completions"
WORDS = "Where is the zebra, and why does it sleep?"
ASKED = [{"role": "user", "content": WORDS}]
TEXT, LIMIT = {"model": "qwen3", "messages": ASKED}, {"max_tokens": 4}


@attrs.frozen
class Told:
    """A request as its client saw it.

    Args:
        tokens: Tokens of prompt and answer, as the response tells; None if it tells none.
    """

    ident: str
    ending: str
    status: int
    tokens: tuple[int, int] | None = None


Action = Callable[[Served], Awaitable[list[Told]]]


def seen(response: RawResponse, tokens: tuple[int, int] | None = None) -> list[Told]:
    """Return a request with this response; its ending follows from the status."""
    ending = "answered" if response.status < 400 else "refused" if response.status < 500 else "failed"
    return [Told(response.headers["x-request-id"], ending, response.status, tokens)]


def usage_of(response: RawResponse) -> tuple[int, int] | None:
    """Return the usage in a whole answer, in the words of its protocol."""
    if response.status >= 400 or not response.headers["content-type"].startswith("application/json"):
        return None
    body = response.json()
    if "prompt_eval_count" in body:
        return body["prompt_eval_count"], body.get("eval_count", 0)
    used = body.get("usage") or {}
    for prompt, answer in (("prompt_tokens", "completion_tokens"), ("input_tokens", "output_tokens")):
        if prompt in used:
            return used[prompt], used.get(answer, 0)
    return None


def posted(path: str, body: dict[str, Any], *, counted: bool = True) -> Action:
    """Return the action that posts JSON."""

    async def act(served: Served) -> list[Told]:
        response = await fetch(served.server, "POST", path, body)
        return seen(response, usage_of(response) if counted else None)

    return act


async def transcribe(served: Served) -> list[Told]:
    """Post a recording."""
    upload = form_request("/v1/audio/transcriptions", {"model": "hears"}, sounds.tone(0.2))
    async with connected(served.server) as client:
        await client.request("POST", upload.path, upload.body, content_type=upload.content_type)
        return seen(await client.receive_response())


async def hang_up(served: Served) -> list[Told]:
    """Leave in the middle of an answer."""
    body = {**TEXT, "max_tokens": 20_000, "ignore_eos": True, "stream": True}
    async with connected(served.server) as client:
        await client.request("POST", CHAT, json.dumps(body).encode())
        head = (await client.read_until(b"data: ")).decode().lower()
        for _ in range(3):
            await client.read_until(b"data: ")
    ident = head.split("x-request-id: ")[1].split("\r\n")[0]
    return [Told(ident, "cancelled", 200)]


async def run_in_background(served: Served) -> list[Told]:
    """Start a response in the background, and read its events to the end."""
    body = {"model": "qwen3", "input": WORDS, "background": True}
    created = await fetch(served.server, "POST", "/v1/responses", {**body, "max_output_tokens": 4})
    read = await fetch(served.server, "GET", f"/v1/responses/{created.json()['id']}?stream=true")
    return [*seen(created), *seen(read)]


async def speak_on_socket(served: Served) -> list[Told]:
    """Send two messages on a WebSocket."""
    told: list[Told] = []
    async with open_socket(served) as socket:
        for _ in range(2):
            message = {"type": "response.create", "model": "qwen3", "input": WORDS, "max_output_tokens": 3}
            last = (await socket.answer(message, store=False))[-1]["response"]
            used = last["usage"]["input_tokens"], last["usage"]["output_tokens"]
            ident = last["id"].replace("resp_", "req_")
            told.append(Told(ident, "answered", 200, used))
    return told


async def break_http(served: Served) -> list[Told]:
    """Send what is no HTTP."""
    async with connected(served.server) as client:
        await client.send(b"NOT HTTP\r\n\r\n")
        return seen(await client.receive_response())


async def come_from_elsewhere(served: Served) -> list[Told]:
    """Send a request as another site's page does."""
    return seen(await fetch(served.server, "POST", CHAT, {**TEXT}, origin="https://evil.example"))


ACTIONS: tuple[Action, ...] = (
    posted(CHAT, {**TEXT, **LIMIT}),
    posted(CHAT, {**TEXT, **LIMIT, "n": 3}),
    posted(CHAT, {**TEXT, **LIMIT, "stream": True}),
    posted("/v1/completions", {"model": "qwen3", "prompt": [WORDS, "Or not?"], **LIMIT}),
    posted("/v1/messages", {**TEXT, **LIMIT}, counted=False),
    posted("/v1/messages", {**TEXT, **LIMIT, "stream": True}),
    posted("/v1/responses", {"model": "qwen3", "input": WORDS, "max_output_tokens": 4, "store": False}),
    posted("/v1/responses", {"model": "qwen3", "input": WORDS, "max_output_tokens": 4}),
    posted("/api/chat", {**TEXT, "stream": False, "options": {"num_predict": 3}}),
    posted("/api/generate", {"model": "qwen3", "prompt": WORDS, "options": {"num_predict": 3}}),
    posted("/v1/embeddings", {"model": "bert", "input": ["Hello", "there"]}),
    posted("/api/embed", {"model": "bert", "input": "Hello"}),
    posted(
        "/v1/rerank", {"model": "bert-rerank", "query": "sea", "documents": ["Hello", "there"]}, counted=False
    ),
    posted(CHAT, {**TEXT, "model": "absent"}),
    posted(CHAT, {**TEXT, "model": "broken"}),
    posted(CHAT, {**TEXT, "temperature": "warm"}),
    posted("/v1/nothing/here", {}),
    hang_up,
    run_in_background,
    speak_on_socket,
    break_http,
    come_from_elsewhere,
)
SLOW_ACTIONS = (
    posted("/v1/audio/speech", {"model": "speaks", "input": "Hello.", "response_format": "wav"}),
    transcribe,
)


@pytest.mark.parametrize(
    "count", [60, pytest.param(2_000, marks=pytest.mark.soak)], ids=["some", "two thousand"]
)
async def test_every_request_of_a_mixed_load_is_one_true_row(
    tiny_model: Callable[..., Path],
    tiny_encoder: Callable[..., Path],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    count: int,
) -> None:
    folders = [tiny_model("qwen3"), tiny_encoder("bert"), tiny_encoder("bert-rerank")]
    (tmp_path / "broken").mkdir()
    shutil.copy(folders[0] / "config.json", tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights")
    actions = [*ACTIONS]
    if count > 100:
        for name, fixture in (("speaks", "tiny_pocket"), ("hears", "tiny_whisper")):
            folders.append(shutil.copytree(request.getfixturevalue(fixture), tmp_path / name))
        actions += SLOW_ACTIONS
    settings = Settings(
        models=tuple(map(str, (*folders, tmp_path / "broken"))),
        db=str(tmp_path / "kept.db"),
        shutdown_timeout=60.0,
        speculation="off",
    )
    random = Random(25)
    order = [actions[number % len(actions)] for number in range(count)]
    random.shuffle(order)
    told: list[Told] = []
    began = time.monotonic()

    async def work(served: Served) -> None:
        while order:
            told.extend(await order.pop()(served))

    with structlog.testing.capture_logs() as lines:
        async with serving(settings) as served:
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(work, served)
            audit = served.system.refs.audit
            assert audit is not None
            await until(lambda: audit.book.in_flight == 0)
    compare(told, rows_of(tmp_path / "kept.db"), lines, time.monotonic() - began)
    assert len({each.ending for each in told}) == 4


def rows_of(database: Path) -> dict[str, dict[str, Any]]:
    """Return the rows by request id, each of which occurs once."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("select * from greenroom_audit")]
        [sums] = connection.execute("select sum(requests), sum(generated_tokens) from greenroom_usage")
    assert tuple(sums) == (len(rows), sum(row["generated_tokens"] or 0 for row in rows))
    return {row["request_id"]: row for row in rows}


def compare(told: list[Told], rows: dict[str, dict[str, Any]], lines: Any, longest: float) -> None:
    """Compare the rows with what the clients saw, and with what the models' actors logged.

    Args:
        longest: Seconds within which all requests have ended.
    """
    assert sorted(rows) == sorted(each.ident for each in told)
    logged: dict[str, list[int]] = {}
    for line in lines:
        if line["event"] in ("request finished", "request failed") and line.get("actor") == "model":
            sums = logged.setdefault(line["request_id"].partition("-")[0], [0, 0, 0])
            for place, name in enumerate(("prompt_tokens", "cached_tokens", "generated_tokens")):
                sums[place] += line.get(name, 0)
    for each in told:
        row = rows[each.ident]
        where = f"{each} {row}"
        assert (row["ending"], row["status"]) == (each.ending, each.status), where
        if each.tokens is not None:
            assert (row["prompt_tokens"], row["generated_tokens"]) == each.tokens, where
        if each.ident in logged:
            found = [row[f"{name}_tokens"] for name in ("prompt", "cached", "generated")]
            assert found == logged[each.ident], where
            assert row["prefill"] + row["decode"] > 0, where
        spent = row["queue"] + row["prefill"] + row["decode"]
        assert spent <= row["seconds"] + 0.01, where
        # A row may end after its client: a model stops at its next step.
        assert row["seconds"] <= longest, where
        assert 0 < time.time() - row["time"] < 3_600, where
