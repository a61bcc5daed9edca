"""Routes for operators, refused to everything but programs of the server's machine."""

from __future__ import annotations

import socket

import pytest
import trio
from werkzeug.datastructures import Headers

from greenroom.http.guard.host_guard import find_loopback_problem
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import (
    RawClient,
    RawResponse,
    Served,
    connected,
    fetch,
    serving,
)

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
