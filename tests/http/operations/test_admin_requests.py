"""The audit over real sockets: one row for each request, whatever its protocol and its end."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
import structlog.testing
import trio
from click.testing import CliRunner, Result

from greenroom.http.commands.keys import audit_command as audit
from greenroom.http.commands.keys import usage_command as usage
from greenroom.schemas.settings.settings import Settings
from greenroom.testing import Faults, FaultyEngines
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.clients.web_socket_clients import open_socket
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, fetch, serving

CHAT = "/v1/chat/completions"
BAD_QUERIES = ("limit=0", "since=soon", "ending=odd", "status=7", "after=-1", "follow=x", "since=nan")
ASKED = [{"role": "user", "content": "Where is the zebra?"}]


@pytest.fixture
def settings(tiny_model: Callable[..., Path], tmp_path: Path) -> Settings:
    models = (str(tiny_model("qwen3")),)
    return Settings(models=models, db=str(tmp_path / "kept.db"), shutdown_timeout=20.0)


def rows_of(settings: Settings, where: str = "1") -> list[dict[str, Any]]:
    """Return the rows in the database, the oldest first."""
    with closing(sqlite3.connect(str(settings.db))) as database:
        database.row_factory = sqlite3.Row
        found = database.execute(f"select * from greenroom_audit where {where} order by time, number")
        return [dict(row) for row in found]


def row_of(settings: Settings, ident: str) -> dict[str, Any]:
    """Return the only row of a request."""
    [row] = rows_of(settings, f"request_id = '{ident}'")
    return row


def total(days: list[dict[str, Any]], name: str) -> int:
    """Return a sum over all days: midnight may come between two requests."""
    return sum(day[name] for day in days)


async def hang_up(served: Served, body: dict[str, Any]) -> str:
    """Send a chat, and leave after some tokens; return the request's id."""
    async with connected(served.server) as client:
        await client.request("POST", CHAT, json.dumps(body).encode())
        head = (await client.read_until(b"data: ")).decode().lower()
        for _ in range(4):
            await client.read_until(b"data: ")
    return head.split("x-request-id: ")[1].split("\r\n")[0]


async def test_each_ending_is_a_row_with_true_tokens_and_seconds(settings: Settings) -> None:
    async with serving(settings) as served:
        body = {"model": "qwen3", "messages": ASKED, "max_tokens": 5}
        answered = await fetch(served.server, "POST", CHAT, body)
        streamed = await fetch(served.server, "POST", "/v1/messages", {**body, "stream": True})
        missing = await fetch(served.server, "POST", CHAT, {**body, "model": "no-such-model"})
        unknown = await fetch(served.server, "GET", "/v1/nothing/at/all")
        spoiled = await fetch(served.server, "POST", "/api/chat", {"messages": 1})
        probed = await fetch(served.server, "GET", "/health")
        left = await hang_up(served, {**body, "max_tokens": 20_000, "ignore_eos": True, "stream": True})
        async with connected(served.server) as client:
            await client.send(b"NOT HTTP\r\n\r\n")
            broken = await client.receive_response()
        async with open_socket(served) as socket:
            await socket.send_binary(b"no text")
            await socket.wait_closed()
        async with open_socket(served) as socket:
            events = await socket.answer(
                {"type": "response.create", "model": "qwen3", "input": "one", "max_output_tokens": 3}
            )
    ident = answered.headers["x-request-id"]
    row, told = row_of(settings, ident), answered.json()["usage"]
    assert (row["ending"], row["status"], row["protocol"]) == ("answered", 200, "openai")
    assert (row["route"], row["model"], row["backend"]) == (f"POST {CHAT}", "qwen3", "local")
    assert (row["prompt_tokens"], row["generated_tokens"]) == (
        told["prompt_tokens"],
        told["completion_tokens"],
    )
    assert 0 < row["prefill"] + row["decode"] <= row["seconds"] < 120
    assert row["body"] == row["answer"] == ""
    row = row_of(settings, streamed.headers["x-request-id"])
    assert (row["ending"], row["protocol"], row["prompt_tokens"]) == (
        "answered",
        "anthropic",
        json.loads(streamed.body.split(b"data: ")[-2].split(b"\n")[0])["usage"]["input_tokens"],
    )
    row = row_of(settings, left)
    assert (row["ending"], row["status"], row["prompt_tokens"]) == ("cancelled", 200, told["prompt_tokens"])
    assert 0 < row["generated_tokens"] < 20_000
    for answer, error, protocol in (
        (missing, "model_not_found", "openai"),
        (unknown, "not_found", "openai"),
        (broken, "bad_request", ""),
    ):
        row = row_of(settings, answer.headers["x-request-id"])
        assert (row["ending"], row["status"], row["error"]) == ("refused", answer.status, error)
        assert row["protocol"] == protocol
        assert row["prompt_tokens"] is None
    assert row_of(settings, spoiled.headers["x-request-id"])["protocol"] == "ollama"
    assert rows_of(settings, f"request_id = '{probed.headers['x-request-id']}'") == []
    assert events[-1]["type"] == "response.incomplete"
    first, second = rows_of(settings, "route = 'WS /v1/responses'")
    assert (first["ending"], first["protocol"], first["status"]) == ("refused", "responses", 400)
    assert (second["ending"], second["generated_tokens"]) == ("answered", 3)
    assert len(rows_of(settings)) == 9


async def written(served: Served, count: int) -> Any:
    """Wait until so many rows are in the database; return the list of them."""
    while True:
        found = (await fetch(served.server, "GET", "/admin/audit")).json()
        if len(found["requests"]) >= count:
            return found
        await trio.sleep(0.05)


async def status(served: Served, ident: str) -> str:
    """Return the status of a stored response."""
    return str((await fetch(served.server, "GET", f"/v1/responses/{ident}")).json()["status"])


async def test_a_crash_and_a_wait_that_is_too_long_have_endings_of_their_own(settings: Settings) -> None:
    faults, settings = Faults(), attrs.evolve(settings, max_batch=1, queue_timeout=0.2)
    body = {"model": "qwen3", "messages": ASKED, "max_tokens": 20_000, "ignore_eos": True}
    async with (
        serving(settings, engines=FaultyEngines(settings, faults)) as served,
        connected(served.server) as client,
    ):
        await client.request("POST", CHAT, json.dumps({**body, "stream": True}).encode())
        head = (await client.read_until(b"data: ")).decode().lower()
        late = await fetch(served.server, "POST", CHAT, body)
        faults.crash.add(crashed := head.split("x-request-id: ")[1].split()[0])
        await client.read_until(b"model_crashed")
        await client.read_until(b"0\r\n\r\n")
    row = row_of(settings, late.headers["x-request-id"])
    assert (row["ending"], row["status"], row["error"]) == ("timed_out", 503, "queue_timeout")
    assert row["seconds"] >= 0.2
    row = row_of(settings, crashed)
    assert (row["ending"], row["status"], row["error"]) == ("failed", 200, "model_crashed")


async def test_a_background_run_is_one_row_that_ends_with_the_run(settings: Settings) -> None:
    body = {"model": "qwen3", "input": "one two", "max_output_tokens": 4, "background": True}
    async with serving(settings) as served:
        created = await fetch(served.server, "POST", "/v1/responses", body)
        ident = created.json()["id"]
        while await status(served, ident) in ("queued", "in_progress"):  # noqa: ASYNC110
            await trio.sleep(0.01)
        long = {**body, "max_output_tokens": 100_000, "ignore_eos": True}
        stopped = await fetch(served.server, "POST", "/v1/responses", long)
        await fetch(served.server, "POST", f"/v1/responses/{stopped.json()['id']}/cancel")
    row = row_of(settings, created.headers["x-request-id"])
    assert (row["background"], row["ending"], row["generated_tokens"]) == (1, "answered", 4)
    assert row["seconds"] >= row["prefill"] + row["decode"]
    row = row_of(settings, stopped.headers["x-request-id"])
    assert (row["background"], row["ending"], row["status"]) == (1, "cancelled", 200)


async def test_rows_are_listed_filtered_paged_followed_and_summed(settings: Settings) -> None:
    async with serving(settings) as served, trio.open_nursery() as nursery:
        seen, opened = list[dict[str, Any]](), trio.Event()

        async def follow() -> None:
            async with connected(served.server) as client:
                await client.request("GET", "/admin/audit?follow=true&ending=refused")
                await client.read_until(b": hello")
                opened.set()
                await client.read_until(b"event: request\ndata: ")
                line = await client.read_until(b"\n\n")
                seen.append(json.loads(line.split(b"\n\n")[0]))

        nursery.start_soon(follow)
        await opened.wait()
        body = {"model": "qwen3", "messages": ASKED, "max_tokens": 2}
        answers = [await fetch(served.server, "POST", CHAT, body) for _ in range(3)]
        refused = await fetch(served.server, "POST", CHAT, {**body, "model": "gone"})

        async def listed(query: str = "") -> Any:
            return (await fetch(served.server, "GET", f"/admin/audit{query}")).json()

        found = await written(served, 4)
        first = await listed("?limit=2")
        second = await listed(f"?limit=2&after={first['requests'][-1]['number']}")
        filtered = await listed("?status=404&ending=refused&since=2020-01-01T00:00Z&until=99999999999")
        strangers = [
            await fetch(served.server, "GET", f"/admin/{what}?key=nobody") for what in ("audit", "usage")
        ]
        sums = (await fetch(served.server, "GET", "/admin/usage?since=2020-01-01")).json()["usage"]
        bad = [
            await fetch(served.server, "GET", f"/admin/audit?{query}")
            for query in (
                "limit=0",
                "since=soon",
                "ending=odd",
                "status=7",
                "after=-1",
                "follow=x",
                "since=nan",
            )
        ]
        bad.append(await fetch(served.server, "GET", "/admin/usage?since=1"))
    ids = [answer.headers["x-request-id"] for answer in (*answers, refused)]
    assert [row["id"] for row in found["requests"]] == ids[::-1]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert [row["id"] for row in (*first["requests"], *second["requests"])] == ids[::-1]
    assert [row["id"] for row in filtered["requests"]] == [ids[-1]] == [row["id"] for row in seen]
    assert [(answer.status, answer.json()["error"]["code"]) for answer in strangers] == [
        (404, "key_not_found")
    ] * 2
    assert (found["waiting"], found["lost"]) == (0, 0)
    assert [answer.status for answer in bad] == [400] * len(bad)
    assert [total(sums, name) for name in ("requests", "refused", "failed")] == [4, 1, 0]
    assert total(sums, "generated_tokens") == sum(a.json()["usage"]["completion_tokens"] for a in answers)


async def test_the_audit_is_shown_at_the_terminal(settings: Settings) -> None:
    # The log of the server would be among what the commands print.
    with structlog.testing.capture_logs():
        async with serving(settings) as served:
            body = {"model": "qwen3", "messages": ASKED, "max_tokens": 2}
            answered = await fetch(served.server, "POST", CHAT, body)
            await written(served, 1)
            await fetch(served.server, "POST", b"/v1/\x1b[31m".decode("latin-1"), {})
            await written(served, 2)

            async def run(shown: click.Command, *arguments: str) -> Result:
                words = [*arguments, "--url", served.server.address]
                return await trio.to_thread.run_sync(CliRunner().invoke, shown, words)

            lines = (await run(audit)).stdout.splitlines()
            objects = [json.loads(line) for line in (await run(audit, "--json")).stdout.splitlines()]
            one = await run(audit, "--ending", "answered", "--limit", "1")
            sums = (await run(usage)).stdout.splitlines()
            as_json = (await run(usage, "--json", "--since", "2020-01-01")).stdout.splitlines()
            wrong = await run(usage, "--since", "soon")
            gone = await run(audit, "--key", "nobody")
    assert [entry["ending"] for entry in objects] == ["refused", "answered"]
    assert len(lines) == 2
    assert "\x1b" not in "".join(lines)
    assert f"answered  200  POST {CHAT}  qwen3" in lines[1] == one.stdout.strip()
    tokens = answered.json()["usage"]
    assert f"  {tokens['prompt_tokens']}/0/{tokens['completion_tokens']}  " in lines[1]
    assert sums[0].split("\t")[:3] == ["day", "key", "requests"]
    assert sum(int(line.split("\t")[2]) for line in sums[1:]) == 2
    days = [json.loads(line) for line in as_json]
    assert (total(days, "requests"), total(days, "refused")) == (2, 1)
    assert (wrong.exit_code, "2026-11-24" in wrong.output) == (1, True)
    assert (gone.exit_code, "`greenroom keys list` lists them" in gone.output) == (1, True)


async def test_content_is_kept_only_if_the_operator_asks_for_it(settings: Settings) -> None:
    async with serving(attrs.evolve(settings, audit_content=True, inspect=1)) as served:
        body = {"model": "qwen3", "messages": ASKED, "max_tokens": 5}
        ident = (await fetch(served.server, "POST", CHAT, body)).headers["x-request-id"]
        shown = (await fetch(served.server, "GET", f"/admin/inspect?id={ident}")).json()
    row = row_of(settings, ident)
    assert "Where is the zebra?" in row["body"]
    assert [row["answer"]] == [output["raw"] for output in shown["outputs"]]


@pytest.mark.parametrize("changes", [{"audit": False}, {"db": None}])
async def test_without_audit_there_is_none(settings: Settings, changes: dict[str, Any]) -> None:
    async with serving(attrs.evolve(settings, **changes)) as served:
        assert (await fetch(served.server, "GET", "/v1/models")).status == 200
        off = await fetch(served.server, "GET", "/admin/audit")
        assert (off.status, off.json()["error"]["code"]) == (404, "audit_off")


KEYS = "/admin/keys"
SETTINGS = Settings(db=":memory:", shutdown_timeout=20.0)


async def models(served: Served, secret: str = "") -> int:
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    return (await fetch(served.server, "GET", "/v1/models", **headers)).status


async def admin(served: Served, method: str, path: str, secret: str = "", body: Any = None) -> RawResponse:
    headers = {"x_api_key": secret} if secret else {}
    return await fetch(served.server, method, path, body, **headers)


async def test_a_key_locks_opens_is_revoked_and_the_server_stays_locked_until_keys_are_off() -> None:
    async with serving(SETTINGS) as served:
        assert await models(served) == 200
        made = (await admin(served, "POST", KEYS, body={"name": "boss", "admin": True})).json()
        boss = made["secret"]
        assert (await models(served), await models(served, "wrong"), await models(served, boss)) == (
            401,
            401,
            200,
        )
        guest = (await admin(served, "POST", KEYS, boss, {"name": "guest"})).json()
        assert await models(served, guest["secret"]) == 200
        refused = await admin(served, "GET", KEYS, guest["secret"])
        assert (refused.status, refused.json()["error"]["code"]) == (403, "admin_key_required")
        listed = await admin(served, "GET", KEYS, boss)
        assert [key["name"] for key in listed.json()["keys"]] == ["boss", "guest"]
        assert boss.encode() not in listed.body
        revoked = await admin(served, "DELETE", f"{KEYS}/{guest['key']['id']}", boss)
        assert revoked.json()["revoked"] is not None
        assert (await models(served, guest["secret"]), await models(served, boss)) == (401, 200)
        assert (await admin(served, "DELETE", f"{KEYS}/boss", boss)).status == 200
        assert (await models(served), await models(served, boss)) == (401, 401)


async def test_a_server_without_the_database_obeys_its_keys_and_changes_them(tmp_path: Path) -> None:
    settings = attrs.evolve(SETTINGS, db=str(tmp_path / "db"))
    async with serving(settings) as first, serving(settings) as second:
        boss = (await admin(first, "POST", KEYS, body={"name": "boss", "admin": True})).json()["secret"]

        async def is_locked(served: Served, secret: str) -> bool:
            return await models(served, secret) == 401

        await eventually(partial(is_locked, second, ""))
        assert await models(second, boss) == 200
        async with serving(settings) as third:  # locked from its first request on
            assert [await models(third, secret) for secret in ("", boss)] == [401, 200]
        guest = (await admin(second, "POST", KEYS, boss, {"name": "guest"})).json()["secret"]
        assert (await admin(second, "DELETE", f"{KEYS}/boss", boss)).status == 200
        await eventually(partial(is_locked, first, boss))
        assert [await models(served, guest) for served in (first, second)] == [200, 200]


async def test_keys_off_lets_everybody_in_again() -> None:
    async with serving(SETTINGS) as served:
        boss = (await admin(served, "POST", KEYS, body={"name": "boss", "admin": True})).json()["secret"]
        assert (await admin(served, "DELETE", KEYS, boss)).status == 200
        assert await models(served) == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "-x"}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x", "requests_per_minute": 0}, "requests_per_minute"),
        ({"name": "x", "tokens_per_minute": -1}, "tokens_per_minute"),
        ({"name": "x", "concurrent": 0}, "concurrent"),
        ({"name": "x", "priority": 2**31}, "priority"),
        ({"name": "x", "expires": 1.0}, "expires"),
        ({"name": "x", "expires": 1e300}, "expires"),
        ({"name": "x", "models": ["a"] * 101}, "models"),
        ({"name": "x", "tools": [" "]}, "tools"),
        ({"name": "x", "metrics": True, "admin": True}, "metrics"),
        ({"name": "x", "metrics": True, "downloads": True}, "metrics"),
        ({"name": "x", "expires_days": 3}, "expires_days"),
    ],
)
async def test_bad_keys_are_refused_by_their_field(body: dict[str, Any], field: str) -> None:
    async with serving(SETTINGS) as served:
        refused = await admin(served, "POST", KEYS, body=body)
        assert refused.status == 400
        assert refused.json()["error"]["param"] == field
        assert await models(served) == 200


async def test_names_are_unique_among_keys_that_open_and_unknown_keys_are_not_found() -> None:
    async with serving(SETTINGS) as served:
        boss = (await admin(served, "POST", KEYS, body={"name": "boss", "admin": True})).json()["secret"]
        assert (await admin(served, "POST", KEYS, boss, {"name": "boss"})).status == 409
        assert (await admin(served, "DELETE", f"{KEYS}/nobody", boss)).status == 404


async def test_a_key_for_metrics_opens_metrics_and_nothing_else() -> None:
    async with serving(SETTINGS) as served:
        boss = (await admin(served, "POST", KEYS, body={"name": "boss", "admin": True})).json()["secret"]
        made = (await admin(served, "POST", KEYS, boss, {"name": "prom", "metrics": True})).json()
        prom = made["secret"]
        paths = ("/metrics", "/readyz", "/v1/models", "/admin/status", KEYS, "/v1/conversations")
        found = [(await admin(served, "GET", path, prom)).status for path in paths]
        assert found == [200, 200, 403, 403, 403, 403]
        refused = await admin(served, "POST", "/v1/chat/completions", prom, {"model": "default"})
        assert (refused.status, refused.json()["error"]["code"]) == (403, "metrics_key")
        assert [key["metrics"] for key in (await admin(served, "GET", KEYS, boss)).json()["keys"]] == [
            False,
            True,
        ]


async def test_rows_and_sums_tell_keys_by_name_and_a_revoked_key_of_the_server_is_said_to_stay() -> None:
    async with serving(Settings(db=":memory:", api_key="of-the-server", shutdown_timeout=20.0)) as served:
        own = "of-the-server"
        guest = (await admin(served, "POST", KEYS, own, {"name": "guest"})).json()
        assert await models(served, guest["secret"]) == 200
        asked = await admin(served, "POST", "/v1/chat/completions", guest["secret"], {"model": "gone"})
        assert asked.status == 400
        entries: list[Any] = []
        while len(entries) < 2:
            page = await admin(served, "GET", "/admin/audit?key=guest", own)
            entries = page.json()["requests"]
        assert {(row["key"], row["key_name"]) for row in entries} == {(guest["key"]["id"], "guest")}
        sums = (await admin(served, "GET", "/admin/usage?key=guest", own)).json()["usage"]
        assert ({row["key_name"] for row in sums}, total(sums, "requests")) == ({"guest"}, 2)
        off = (await admin(served, "DELETE", KEYS, own)).json()
        assert off["of_server"] == ["api_key"]
        assert (await models(served), await models(served, own)) == (401, 200)


async def test_lists_that_the_pages_poll_and_a_failed_fetch_are_told_apart_in_the_audit() -> None:
    async with serving(SETTINGS) as served:
        page = {"sec_fetch_site": "same-origin"}
        for path, status in (("/v1/models", 200), ("/admin/inspect", 404)):
            assert (await fetch(served.server, "GET", path, **page)).status == status
        assert (await fetch(served.server, "POST", "/admin/pull", {"model": "nothing"})).status == 400
        assert (await fetch(served.server, "GET", "/v1/models")).status == 200
        rows: list[Any] = []
        while len(rows) < 2:
            rows = (await fetch(served.server, "GET", "/admin/audit")).json()["requests"]
        assert [(row["route"], row["model"]) for row in rows] == [
            ("GET /v1/models", ""),
            ("POST /admin/pull", "nothing"),
        ]
