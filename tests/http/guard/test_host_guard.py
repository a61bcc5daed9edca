"""Allowed hosts and origins, and the refusal of others."""

from __future__ import annotations

import socket

import pytest
from werkzeug.datastructures import Headers

from greenroom.http.guard.host_guard import HostGuard
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, fetch

CHAT = "/v1/chat/completions"
PAGE = "https://chat.example"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8000",
        "localhost.:8000",
        "app.localhost",
        "127.0.0.1",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:8000",
        "192.168.1.7:8000",
        "[fe80::1]:80",
        "[::ffff:127.0.0.1]",
        "localhost:",
        "my_service:8000",
        "greenroom.example",
        "Greenroom.Example:443",
        "host.docker.internal:8000",
        "host.containers.internal",
    ],
)
def test_addresses_and_known_names_are_answered(host: str) -> None:
    guard = HostGuard(Settings(allowed_hosts=("greenroom.example", "my_service")))
    assert guard.find_problem(Headers({"Host": host})) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil-localhost",
        "greenroom.example.evil",
        "[evil.example]",
        "[127.0.0.1]evil.com",
        "[127.0.0.1]",
        "[::1]evil.com",
        "[::1]@evil.com",
        "[::1",
        "::1",
        "127.1",
        "0x7f000001",
        "localhost/evil.example",
        "localhost:80@evil.example",
        "localhost, evil.example",
        "localhost:99999",
        "evil.example#.localhost",
        ".",
        ":80",
        "a" * 300,
        "localhost@evil.example",
        "0x7f000001.example",
        "127.0.0.1:80:80",
    ],
)
def test_borrowed_names_are_not(host: str) -> None:
    refusal = HostGuard(Settings()).find_problem(Headers({"Host": host}))
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "host_not_allowed")


@pytest.mark.parametrize("host", ["", "  "])
def test_an_empty_host_is_an_error_and_none_is_not(host: str) -> None:
    refusal = HostGuard(Settings()).find_problem(Headers({"Host": host}))
    assert refusal is not None
    assert (refusal.status, refusal.code) == (400, "invalid_host")
    assert HostGuard(Settings()).find_problem(Headers()) is None
    assert HostGuard(Settings()).find_problem(Headers({"Host": host}), http_version="1.0") is None


@pytest.mark.parametrize(
    ("name", "answered", "refused"),
    [
        (
            "studio.fritz.box",
            ["studio.fritz.box", "studio.local", "STUDIO.local.:8000"],
            ["studio", "fritz.local"],
        ),
        ("Studio.local", ["studio.local:8000"], ["studio.fritz.box", "studio2.local", "a.studio.local"]),
        ("studio", ["studio", "studio.local"], ["other.local", ".local", "local"]),
        ("localhost", ["localhost"], ["localhost.local"]),
    ],
)
def test_this_machine_has_a_name_in_its_network_and_no_other(
    name: str, answered: list[str], refused: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    guard = HostGuard(Settings())
    assert [host for host in answered if guard.find_problem(Headers({"Host": host}))] == []
    assert [host for host in refused if not guard.find_problem(Headers({"Host": host}))] == []


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://chat.example",
        "https://chat.example.evil",
        "http://localhost:3000",
    ],
)
async def test_pages_of_other_origins_are_turned_away(server_without_model: Served, origin: str) -> None:
    for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("OPTIONS", CHAT)):
        answer = await fetch(
            server_without_model.server, method, path, {} if method == "POST" else None, origin=origin
        )
        assert (answer.status, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in answer.headers


async def test_an_allowed_page_may_ask_first_and_then_read(server_without_model: Served) -> None:
    asking = {
        "origin": PAGE,
        "access_control_request_method": "POST",
        "access_control_request_headers": "authorization,content-type,x-stainless-os",
        "access_control_request_private_network": "true",
    }
    preflight = await fetch(server_without_model.server, "OPTIONS", CHAT, **asking)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert preflight.headers["access-control-allow-headers"] == asking["access_control_request_headers"]
    assert preflight.headers["access-control-allow-private-network"] == "true"
    assert preflight.headers["vary"] == "Origin"
    for answer in (
        await fetch(server_without_model.server, "GET", "/v1/models", origin=PAGE),
        await fetch(server_without_model.server, "POST", CHAT, b"{", origin=PAGE),
    ):
        assert answer.headers["access-control-allow-origin"] == PAGE
        exposed = set(answer.headers["access-control-expose-headers"].split(", "))
        assert {"x-request-id", "x-client-request-id", "x-ratelimit-remaining-requests"} <= exposed
        assert {"retry-after", "anthropic-ratelimit-input-tokens-reset"} <= exposed
    assert (
        "access-control-allow-origin"
        not in (await fetch(server_without_model.server, "GET", "/v1/models")).headers
    )


async def test_a_preflight_allows_every_method_that_a_route_has(server_without_model: Served) -> None:
    asking = {"origin": PAGE, "access_control_request_method": "DELETE"}
    for path in (CHAT, "/v1/responses/resp_1", "/v1/conversations/conv_1/items/msg_1", "/nowhere"):
        preflight = await fetch(server_without_model.server, "OPTIONS", path, **asking)
        allowed = preflight.headers["access-control-allow-methods"].split(", ")
        assert (preflight.status, allowed) == (204, ["DELETE", "GET", "HEAD", "OPTIONS", "POST"])
    deleted = await fetch(server_without_model.server, "DELETE", "/v1/responses/resp_1", origin=PAGE)
    assert deleted.status == 404
    assert deleted.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize(
    ("origin", "scheme", "host", "hosts", "admitted"),
    [
        ("http://localhost:8000", "http", "localhost:8000", (), True),
        ("http://LOCALHOST:8000", "http", "Localhost:8000", (), True),
        ("http://127.0.0.1:8000", "http", "127.0.0.1:8000", (), True),
        ("http://[::1]:8000", "http", "[::1]:8000", (), True),
        ("http://localhost", "http", "localhost:80", (), True),
        ("https://localhost", "https", "localhost:443", (), True),
        ("https://home.example", "https", "home.example", ("home.example",), True),
        ("http://localhost:3000", "http", "localhost:8000", (), False),
        ("http://127.0.0.1:8000", "http", "localhost:8000", (), False),
        ("http://localhost:8000", "https", "localhost:8000", (), False),
        ("https://localhost:8000", "http", "localhost:8000", (), False),
        ("http://localhost:443", "https", "localhost", (), False),
        ("http://evil.example:8000", "http", "evil.example:8000", (), False),
        ("http://evil.example:8000", "http", "evil.example:8000", ("*",), False),
        ("http://localhost:8000/", "http", "localhost:8000", (), False),
        ("http://", "http", "", (), False),
        ("null", "http", "localhost:8000", (), False),
    ],
)
def test_the_servers_own_pages_are_no_strangers(
    origin: str, scheme: str, host: str, hosts: tuple[str, ...], admitted: bool
) -> None:
    guard = HostGuard(Settings(allowed_hosts=hosts))
    assert (guard.find_problem(Headers({"Origin": origin, "Host": host}), scheme) is None) is admitted


async def test_a_page_of_the_server_posts_to_it(server_without_model: Served) -> None:
    host = f"localhost:{server_without_model.server.port}"
    server = server_without_model.server
    own = await fetch(server, "POST", CHAT, b"{", origin=f"http://{host}", host=host)
    other = await fetch(server, "POST", CHAT, b"{", origin="http://localhost:1", host=host)
    assert (own.status, other.status) == (400, 403)
    assert "access-control-allow-origin" not in own.headers


CROSS_SITE = {"Host": "localhost", "Sec-Fetch-Site": "cross-site"}
FOLLOWED = {**CROSS_SITE, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("headers", "origins", "refused"),
    [
        ({**CROSS_SITE, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, (), True),
        ({**CROSS_SITE, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, (), True),
        ({**CROSS_SITE, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, (PAGE,), True),
        ({**CROSS_SITE, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, ("*",), False),
        ({**CROSS_SITE, "Origin": PAGE}, (PAGE,), False),
        (FOLLOWED, (), False),
        ({**CROSS_SITE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "image"}, (), True),
        ({**CROSS_SITE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "image"}, ("*",), False),
        ({**CROSS_SITE, "Sec-Fetch-Site": "same-site", "Origin": PAGE}, (PAGE,), False),
        ({**FOLLOWED, "Sec-Fetch-Site": "same-site"}, (), False),
        ({**CROSS_SITE, "Sec-Fetch-Site": "same-origin"}, (), False),
        ({**CROSS_SITE, "Sec-Fetch-Site": "none"}, (), False),
        ({"Host": "localhost"}, (), False),
    ],
)
def test_pages_of_other_sites_embed_nothing(
    headers: dict[str, str], origins: tuple[str, ...], refused: bool
) -> None:
    problem = HostGuard(Settings(allowed_origins=origins)).find_problem(Headers(headers))
    assert (problem.code if problem else None) == ("origin_not_allowed" if refused else None)
