"""Programs of this machine without a key while keys exist: they own what they store, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.datastructures import Headers

from greenroom.http.guard.keys import Door, Head, KeyRing
from greenroom.schemas.settings.caller import ANYBODY, STRANGER, Caller, KeyRecord, digest_of
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.http_servers import RawResponse, Served, fetch, serving

TURN = {"model": "llama", "input": "Hi", "max_output_tokens": 2}
CHAT = {
    "model": "llama",
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 2,
    "store": True,
}
STORED = [("/v1/responses", TURN), ("/v1/conversations", {}), ("/v1/chat/completions", CHAT)]
LISTS = ["/v1/conversations", "/v1/chat/completions"]


@pytest.fixture
async def served(tiny_model: TinyModel, tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings(
        models=(str(tiny_model("llama")),),
        db=str(tmp_path / "db"),
        open_loopback=True,
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        yield served


async def ask(served: Served, method: str, path: str, body: Any = None, **headers: str) -> RawResponse:
    return await fetch(served.server, method, path, body, **headers)


async def admin_key(served: Served) -> str:
    made = await ask(served, "POST", "/admin/keys", {"name": "boss", "admin": True})
    return str(made.json()["secret"])


@pytest.mark.parametrize(("path", "body"), STORED)
async def test_strangers_find_nothing_of_admins_and_from_before_there_were_keys(
    served: Served, path: str, body: Any
) -> None:
    before = (await ask(served, "POST", path, body)).json()["id"]
    boss = await admin_key(served)
    after = (await ask(served, "POST", path, body, x_api_key=boss)).json()["id"]
    never = f"{before[:-1]}_"
    for method in ("GET", "DELETE"):
        unknown = told(await ask(served, method, f"{path}/{never}"), never)
        for ident in (before, after):
            refused = await ask(served, method, f"{path}/{ident}")
            assert (refused.status, told(refused, ident)) == (404, unknown)
    for ident in (before, after):
        assert (await ask(served, "GET", f"{path}/{ident}", x_api_key=boss)).status == 200


@pytest.mark.parametrize("path", LISTS)
async def test_strangers_list_only_their_own(served: Served, path: str) -> None:
    body = dict(STORED)[path]
    boss = await admin_key(served)
    await ask(served, "POST", path, body, x_api_key=boss)
    assert (await ask(served, "GET", path)).json()["data"] == []
    own = (await ask(served, "POST", path, body)).json()["id"]
    assert [entry["id"] for entry in (await ask(served, "GET", path)).json()["data"]] == [own]
    assert (await ask(served, "GET", f"{path}/{own}", x_api_key=boss)).status == 404
    assert (await ask(served, "DELETE", f"{path}/{own}?owner=strangers", x_api_key=boss)).status == 200
    assert (await ask(served, "GET", path)).json()["data"] == []


async def test_strangers_continue_no_response_and_no_conversation_of_admins(served: Served) -> None:
    boss = await admin_key(served)
    first = (await ask(served, "POST", "/v1/responses", TURN, x_api_key=boss)).json()["id"]
    talk = (await ask(served, "POST", "/v1/conversations", {}, x_api_key=boss)).json()["id"]
    for told_of in ({"previous_response_id": first}, {"conversation": talk}):
        assert (await ask(served, "POST", "/v1/responses", {**TURN, **told_of})).status == 404
        assert (await ask(served, "POST", "/v1/responses", {**TURN, **told_of}, x_api_key=boss)).status == 200


async def test_before_keys_all_programs_share_what_they_store(served: Served) -> None:
    made = (await ask(served, "POST", "/v1/responses", TURN)).json()["id"]
    assert (await ask(served, "GET", f"/v1/responses/{made}")).status == 200
    assert (await ask(served, "DELETE", f"/v1/responses/{made}")).status == 200


async def test_the_key_of_the_terminal_is_a_stranger_once_there_is_an_admin_key() -> None:
    head = Head(
        "GET", "/v1/conversations", Headers({"Host": "localhost", "x-api-key": "minted"}), "127.0.0.1"
    )
    guest = KeyRecord("guest", digest_of("guest"), Caller("key_1", admin=False), created=0.0)
    boss = KeyRecord("boss", digest_of("boss"), Caller("key_2"), created=0.0)
    found = []
    for keys in ((), (guest,), (guest, boss)):
        ring = KeyRing(keys)
        ring.take_session_key("minted")
        found.append(await Door(ring).admit(head))
    assert found == [ANYBODY, ANYBODY, STRANGER]
    assert (STRANGER.admin, STRANGER.has_key, STRANGER.owner in ("", "key_1", "key_2")) == (
        False,
        False,
        False,
    )


def told(answer: RawResponse, ident: str) -> bytes:
    """Return a body without the ids of the request and of the object."""
    return re.sub(rb"req_[0-9a-f]{32}", b"", answer.body).replace(ident.encode(), b"")
