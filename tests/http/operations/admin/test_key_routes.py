"""`/admin/keys` on a running server: keys made there lock it, and revoked ones open nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.actors.actor_systems import eventually
from greenroom.tests.support.servers.http_servers import RawResponse, Served, fetch, serving

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
        assert [(row["key_name"], row["requests"]) for row in sums] == [("guest", 2)]
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
