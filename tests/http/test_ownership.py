"""Stored objects of two callers: each is unknown to the other, on every route that takes an id."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from quart import request

from greenroom.actors.system import open_system
from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with, web_sockets
from greenroom.schemas.settings.caller import Caller
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import running

ALICE, BOB = {"x-test-owner": "key_alice"}, {"x-test-owner": "key_bob"}
UNKNOWN = "never"
"""Begins the stand-in for an id that never was."""
STORED = {"ident", "conversation_id", "item_id", "completion_id"}
"""Arguments of routes that are ids of stored objects."""
OTHERS = {"path:model", "path:_path", "path:name"}
"""Arguments that are no ids: names of models and of pages, and paths below what is not served."""
BODIES: dict[str, Any] = {
    "/v1/conversations/<conversation_id>": {"metadata": {"a": "b"}},
    "/v1/conversations/<conversation_id>/items": {"items": [{"role": "user", "content": "Hi"}]},
    "/v1/chat/completions/<completion_id>": {"metadata": {"a": "b"}},
}


@attrs.frozen
class Door:
    """A server that knows its callers by a header, and the routes that take ids."""

    client: httpx.AsyncClient
    routes: tuple[tuple[str, str, frozenset[str]], ...]

    async def ask(self, method: str, path: str, who: dict[str, str], body: Any = None) -> httpx.Response:
        """Return the response to one caller."""
        return await self.client.request(method, path, headers=who, json=body)

    async def made(self, path: str, body: Any) -> Any:
        """Post a body as Alice, and return the JSON of the answer."""
        answer = await self.ask("POST", path, ALICE, body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def settings(tiny_model: Callable[..., Path], tmp_path: Path) -> Settings:
    return Settings(models=(str(tiny_model("qwen3")),), db=str(tmp_path / "store.db"), shutdown_timeout=60.0)


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Door]:
    async with open_system(settings) as system:
        services = RouteServices(system.refs, settings)
        app = create_app_with(services)

        async def know_caller() -> None:
            owner = request.headers["x-test-owner"]
            request.scope["state"]["caller"] = Caller(owner, admin=False)

        app.before_request(know_caller)
        rules = app.url_map.iter_rules()
        routes = tuple(
            (method, rule.rule, frozenset(re.findall("<(.+?)>", rule.rule)))
            for rule in rules
            if "<" in rule.rule and not rule.rule.startswith("/admin/")  # closed to all but operators
            for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
        )
        async with (
            running(app, settings, sockets=web_sockets(app, services)) as server,
            httpx.AsyncClient(base_url=server.address, timeout=600) as client,
        ):
            yield Door(client, routes)


async def test_a_foreign_id_is_answered_as_one_that_never_was_on_every_route(settings: Settings) -> None:
    async with opened(settings) as door:
        asked = {"model": "default", "max_output_tokens": 4, "input": "Hi"}
        response = await door.made("/v1/responses", asked)
        run = await door.made("/v1/responses", {**asked, "background": True})
        conversation = await door.made("/v1/conversations", {"items": [{"role": "user", "content": "Hi"}]})
        items = await door.ask("GET", f"/v1/conversations/{conversation['id']}/items", ALICE)
        messages = [{"role": "user", "content": "Hi"}]
        chat = await door.made(
            "/v1/chat/completions",
            {"model": "default", "messages": messages, "max_tokens": 4, "store": True},
        )
        ids = {
            "ident": (response["id"], run["id"]),
            "conversation_id": (conversation["id"],),
            "item_id": (items.json()["data"][0]["id"],),
            "completion_id": (chat["id"],),
        }
        checked = 0
        for method, rule, names in door.routes:
            assert names <= STORED | OTHERS, f"{rule} takes a new id: say whose it is"
            if not names & STORED:
                continue
            for number in range(max(len(ids[name]) for name in names)):
                true, false = rule, rule
                swapped = {}
                for name in names:
                    known = ids[name][min(number, len(ids[name]) - 1)]
                    never = UNKNOWN.ljust(len(known), "0")
                    true = true.replace(f"<{name}>", known)
                    false = false.replace(f"<{name}>", never)
                    swapped[known] = never
                await _check(door, method, rule, true, false, swapped)
                checked += 1
        assert checked >= 14
        for name in ids["ident"]:
            assert (await door.ask("GET", f"/v1/responses/{name}", ALICE)).status_code == 200
        for path in (f"/v1/conversations/{conversation['id']}", f"/v1/chat/completions/{chat['id']}"):
            assert (await door.ask("GET", path, ALICE)).status_code == 200
        for field, known in (
            ("previous_response_id", response["id"]),
            ("conversation", conversation["id"]),
        ):
            never = UNKNOWN.ljust(len(known), "0")
            foreign = await door.ask("POST", "/v1/responses", BOB, {**asked, field: known})
            unknown = await door.ask("POST", "/v1/responses", BOB, {**asked, field: never})
            _check_alike(foreign, unknown, {known: never}, field)
        listed = await door.ask("GET", "/v1/chat/completions", BOB)
        assert listed.json()["data"] == []


async def _check(door: Door, method: str, rule: str, true: str, false: str, swapped: dict[str, str]) -> None:
    body = BODIES.get(rule) if method == "POST" else None
    foreign = await door.ask(method, true, BOB, body)
    unknown = await door.ask(method, false, BOB, body)
    _check_alike(foreign, unknown, swapped, f"{method} {rule}")


def _check_alike(
    foreign: httpx.Response, unknown: httpx.Response, swapped: dict[str, str], where: str
) -> None:
    """Check that both are the same 404, apart from the ids that were asked for and the requests' own."""
    assert foreign.status_code == unknown.status_code == 404, f"{where}: {foreign.text}"
    content = foreign.content
    swapped = {**swapped, foreign.headers["x-request-id"]: unknown.headers["x-request-id"]}
    for known, never in swapped.items():
        content = content.replace(known.encode(), never.encode())
    assert content == unknown.content, where
