"""Allowed hosts and origins, and the refusal of others."""

from __future__ import annotations

import socket

import pytest
import trio
from werkzeug.datastructures import Headers

from greenroom.engine.resources.fair_queue import address_of
from greenroom.http.guard.host_guard import HostGuard, client_name, find_loopback_problem
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import (
    RawClient,
    RawResponse,
    Served,
    connected,
    fetch,
    serving,
)

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
    page = await fetch(server_without_model.server, "GET", "/", origin=PAGE)
    assert {name.strip() for name in page.headers["vary"].split(",")} == {"Accept", "Origin"}
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


def test_clients_are_told_apart_by_key_and_address() -> None:
    def name(address: str | None, **headers: str) -> str:
        return client_name(Headers({key.replace("_", "-"): value for key, value in headers.items()}), address)

    bearer, other = {"authorization": "Bearer sk-one"}, {"authorization": "bearer sk-two"}
    names = [name("10.0.0.1"), name("10.0.0.2"), name("10.0.0.1", **bearer), name("10.0.0.1", **other)]
    assert len({*names, name("10.0.0.2", **bearer)}) == 5
    assert name("10.0.0.1", x_api_key="sk-one") == names[2]
    assert name("10.0.0.1", authorization="Basic sk-one") == names[0]
    assert name(None) == ""
    assert "sk-one" not in names[2]
    programs = [client_name(Headers(each), "127.0.0.1", group) for each in ({}, bearer) for group in (7, 8)]
    assert len({*programs, name("127.0.0.1"), name("127.0.0.1", **bearer)}) == 6
    assert {address_of(each) for each in programs} == {"127.0.0.1"}


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    def name(address: str) -> str:
        return client_name(Headers(), address)

    assert name("2001:db8:1:2::3") == name("2001:db8:1:2:ffff::1") != name("2001:db8:1:3::3")
    assert name("fe80::1%eth0") == name("fe80::2")
    assert name("::1") == name("127.0.0.1")  # a local program may use either address
    assert name("::ffff:10.0.0.1") == name("10.0.0.1") != name("10.0.0.2")


STATUS = "/admin/status"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8000", "a.localhost", "127.0.0.1:80", "[::1]"])
def test_programs_of_this_machine_are_answered(address: str, host: str) -> None:
    headers = Headers({"Host": host, "Authorization": "Bearer key", "User-Agent": "curl"})
    assert find_loopback_problem(headers, address) is None


@pytest.mark.parametrize(
    "address",
    [None, "", "192.0.2.1", "10.0.0.1", "0.0.0.0", "::", "::ffff:192.0.2.1", "fe80::1%eth0", "/run/socket"],
)
def test_other_addresses_are_not(address: str | None) -> None:
    problem = find_loopback_problem(Headers({"Host": "localhost"}), address)
    assert problem is not None
    assert (problem.status, problem.code) == (403, "loopback_only")


REFUSED = [
    {"Forwarded": "for=192.0.2.1"},
    {"forwarded": ""},
    {"X-Forwarded-For": "127.0.0.1"},
    {"x-forwarded-proto": "https"},
    {"X-Forwarded-Host": "localhost"},
    {"X-Real-IP": "127.0.0.1"},
    {"Via": "1.1 proxy"},
    {"CF-Connecting-IP": "192.0.2.1"},
    {"X-ProxyUser-Ip": "192.0.2.1"},
    {"X-Original-Host": "chat.example"},
    {"X-Azure-ClientIP": "192.0.2.1"},
    {"Tailscale-User-Login": "ada@example.com"},
    {"Ngrok-Auth-User-Id": "ada"},
    {"Host": "chat.example"},
    {"Host": "192.0.2.1:8000"},
    {"Host": "host.docker.internal:8000"},
    {"Host": "localhost.evil.example"},
    {"Host": "evil-localhost"},
    {"Origin": "https://chat.example"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", REFUSED, ids=str)
def test_proxies_and_pages_of_this_machine_are_not(headers: dict[str, str]) -> None:
    problem = find_loopback_problem(Headers({"Host": "localhost", **headers}), "127.0.0.1")
    assert problem is not None
    assert problem.code == "loopback_only"


@pytest.mark.parametrize("host", ["localhost:8000", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000"])
def test_the_own_page_is_answered(host: str) -> None:
    own = Headers({"Host": host, "Origin": f"http://{host.lower()}", "Sec-Fetch-Site": "same-origin"})
    assert find_loopback_problem(own, "127.0.0.1") is None
    for origin in ("http://localhost:8001", "http://localhost", f"http://{host.lower()}.evil.example", ""):
        own["Origin"] = origin
        assert find_loopback_problem(own, "127.0.0.1") is not None


async def test_an_allowed_page_and_a_proxy_reach_the_models_but_not_the_operators_routes(
    server_without_model: Served,
) -> None:
    server = server_without_model.server
    for headers in (
        {"origin": "https://chat.example"},
        {"host": "greenroom.example"},
        {"x_forwarded_for": "192.0.2.1"},
    ):
        assert (await fetch(server, "GET", "/v1/models", **headers)).status == 200
        refused = await fetch(server, "GET", STATUS, **headers)
        assert (refused.status, refused.json()["error"]["code"]) == (403, "loopback_only")
    assert (await fetch(server, "GET", STATUS)).status == 200


@pytest.mark.parametrize("request_line", ["HTTP/1.0\r\nHost: localhost", "HTTP/1.0"])
async def test_a_proxy_that_speaks_an_old_http_and_adds_no_header_is_refused(
    server_without_model: Served, request_line: str
) -> None:
    async with connected(server_without_model.server) as client:
        await client.send(f"GET {STATUS} {request_line}\r\n\r\n".encode())
        assert b"loopback_only" in await client.read_to_end()


def _own_addresses() -> list[str]:
    found = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found if not str(entry[4][0]).startswith("127.")]


async def test_another_address_of_the_machine_counts_as_another_machine() -> None:
    async with serving(Settings(host="0.0.0.0", insecure=True, shutdown_timeout=20.0)) as served:

        async def get(address: str, path: str) -> RawResponse:
            async with await trio.open_tcp_stream(address, served.server.port) as stream:
                client = RawClient(stream)
                await client.request("GET", path)
                return await client.receive_response()

        assert (await get("127.0.0.1", STATUS)).status == 200
        for address in _own_addresses():
            assert (await get(address, "/v1/models")).status == 200
            assert (await get(address, STATUS)).status == 403
