"""Every route of every protocol without a key, from the application's own map of routes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import pytest
import trio
from structlog.testing import capture_logs

from greenroom.http.answering.route_services import RouteServices
from greenroom.http.app import create_app_with, web_sockets
from greenroom.http.guard.keys import EXEMPT_PATHS, PAGES_PREFIX
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, connected, fetch, serving

SECRET = "a-key-of-the-settings"
LOCKED = Settings(api_key=SECRET, db=":memory:", shutdown_timeout=20.0)


@pytest.fixture
async def locked() -> AsyncIterator[Served]:
    async with serving(LOCKED) as served:
        yield served


def routes(services: RouteServices) -> Iterator[tuple[str, str]]:
    """Yield the methods and paths of all routes, with a word in place of each parameter."""
    for rule in create_app_with(services).url_map.iter_rules():
        for method in sorted((rule.methods or set()) - {"OPTIONS"}):
            yield method, re.sub(r"<[^>]*>", "word", rule.rule)


async def test_every_route_but_the_probes_needs_a_key(locked: Served) -> None:
    found = list(routes(RouteServices(locked.system.refs, LOCKED)))
    assert len(found) > 60
    for method, path in found:
        answer = await fetch_head(locked, method, path)
        if (path in EXEMPT_PATHS or path.startswith(PAGES_PREFIX)) and method in ("GET", "HEAD"):
            assert answer != 401, (method, path)
        else:
            assert answer == 401, (method, path)


async def fetch_head(served: Served, method: str, path: str, host: str = "localhost", **headers: str) -> int:
    """Return the status of an answer whose body, if any, is not read."""
    async with connected(served.server) as client:
        await client.request(method, path, b"", host=host, **headers)
        return int((await client.read_until(b"\r\n")).split()[1])


async def test_a_path_without_a_route_tells_a_stranger_nothing(locked: Served) -> None:
    assert await fetch_head(locked, "GET", "/v1/nothing") == 401


async def test_every_web_socket_needs_a_key(locked: Served) -> None:
    services = RouteServices(locked.system.refs, LOCKED)
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    paths = list(web_sockets(create_app_with(services), services))
    assert paths
    for path in paths:
        with capture_logs() as logs:
            assert await fetch_head(locked, "GET", path, **upgrade) == 401
        [line] = [line for line in logs if line["event"] == "request refused"]
        assert (line["status"], line["problem"], line["address"]) == (401, "invalid_api_key", "127.0.0.1")
        opened = await fetch_head(locked, "GET", path, **upgrade, authorization=f"Bearer {SECRET}")
        assert opened == 101


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {SECRET}"}, {"x_api_key": SECRET}, {"local_api_key": SECRET}],
    ids=lambda headers: next(iter(headers)),
)
async def test_a_key_opens_in_each_header_that_clients_use(locked: Served, headers: dict[str, str]) -> None:
    assert (await fetch(locked.server, "GET", "/v1/models", **headers)).status == 200
    assert (await fetch(locked.server, "GET", "/admin/status", **headers)).status == 200
    assert (await fetch(locked.server, "GET", "/metrics", **headers)).status == 200


async def test_a_body_is_not_read_before_the_key_is_known(locked: Served) -> None:
    async with connected(locked.server) as client:
        # Nothing of the announced body is ever sent.
        await client.request(
            "POST", "/v1/chat/completions", content_type="application/json", content_length="1000"
        )
        with trio.fail_after(300):
            assert b" 401 " in await client.read_until(b"\r\n")


async def test_a_preflight_needs_no_key_and_a_foreign_host_is_refused_with_one(locked: Served) -> None:
    preflight = {"origin": "https://chat.example", "access_control_request_method": "POST"}
    assert await fetch_head(locked, "OPTIONS", "/v1/chat/completions", **preflight) != 401
    bearer = {"authorization": f"Bearer {SECRET}"}
    assert await fetch_head(locked, "GET", "/v1/models", host="evil.example", **bearer) == 403


async def test_loopback_and_forwarding_headers_are_no_key(locked: Served) -> None:
    for headers in ({"x_forwarded_for": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"x_real_ip": "::1"}):
        assert await fetch_head(locked, "GET", "/v1/models", **headers) == 401
        assert await fetch_head(locked, "GET", "/admin/status", **headers) == 401
