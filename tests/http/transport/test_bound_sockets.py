"""Listening addresses: this machine's loopback addresses by default, or the configured ones."""

from __future__ import annotations

import errno
import socket
from contextlib import closing
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from greenroom.http.transport.accept_loop import AcceptLoop, close_listeners, open_listeners
from greenroom.schemas.settings.listen_address import parse_listen_address
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.connection_app import make_app
from greenroom.tests.support.servers.free_port import free_port
from greenroom.tests.support.servers.http_servers import RawClient, Server, fetch, running


def _bound(port: int, family: socket.AddressFamily) -> socket.socket:
    """Return a listener, as of another program, on a port of a loopback address."""
    other = socket.socket(family)
    other.bind(("127.0.0.1" if family == socket.AF_INET else "::1", port))
    other.listen()
    return other


def _has_ipv6() -> bool:
    try:
        _bound(0, socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6")


def _names(listeners: list[trio.SocketListener]) -> list[tuple[str, int]]:
    return [listener.socket.getsockname()[:2] for listener in listeners]


async def _first_body(host: str, port: int) -> bytes:
    async with await trio.open_tcp_stream(host, port) as stream:
        client = RawClient(stream)
        await client.request("GET", "/")
        return (await client.receive_response()).body


@needs_ipv6
async def test_by_default_it_answers_on_both_loopback_addresses_and_one_port() -> None:
    async with running(make_app(), Settings()) as server:
        assert server.addresses == (f"http://127.0.0.1:{server.port}", f"http://[::1]:{server.port}")
        for host in ("127.0.0.1", "::1"):
            assert await _first_body(host, server.port) == b"ok"


@needs_ipv6
async def test_a_port_of_ones_own_choice_is_listened_to_on_both_too() -> None:
    port = free_port()
    for host in ("localhost", "LOCALHOST."):
        listeners = await open_listeners(Settings(host=host, port=port), ())
        close_listeners(listeners)
        assert len(listeners) == 2
    listeners = await open_listeners(Settings(host="127.0.0.1", port=0, listen=(f"localhost:{port}",)), ())
    assert _names(listeners)[1:] == [("127.0.0.1", port), ("::1", port)]
    close_listeners(listeners)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", pytest.param("::1", marks=needs_ipv6)])
async def test_a_host_that_is_given_means_that_address_alone(host: str) -> None:
    listeners = await open_listeners(Settings(host=host, port=0), ())
    assert [name for name, _ in _names(listeners)] == [host]
    close_listeners(listeners)


@needs_ipv6
async def test_another_program_on_the_second_address_is_warned_of_by_name() -> None:
    with _bound(0, socket.AF_INET6) as other, capture_logs() as logs:
        port = other.getsockname()[1]
        listeners = await open_listeners(Settings(port=port), ())
        assert _names(listeners) == [("127.0.0.1", port)]
        close_listeners(listeners)
    (warning,) = logs
    assert (warning["event"], warning["log_level"]) == ("not listening on ::1", "warning")
    assert (warning["address"], warning["reason"]) == (f"[::1]:{port}", "Address already in use")
    assert "reach whatever program listens there" in warning["danger"]
    assert warning["instead"] == f"http://127.0.0.1:{port}"


@needs_ipv6
async def test_a_free_port_is_free_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first port that the system offers is taken by another program on ::1."""
    with _bound(0, socket.AF_INET6) as other, capture_logs() as logs:
        taken, offered = other.getsockname()[1], list[int]()
        look_up = socket.getaddrinfo

        def offer(host: str, port: int, **hints: int) -> list[Any]:
            if port == 0:
                offered.append(taken if not offered else 0)
                port = offered[-1]
            return look_up(host, port, **hints)

        monkeypatch.setattr(socket, "getaddrinfo", offer)
        first, second = await open_listeners(Settings(port=0), ())
        assert offered == [taken, 0]
        assert first.socket.getsockname()[1] == second.socket.getsockname()[1] != taken
        close_listeners([first, second])
    assert logs == []


@pytest.mark.parametrize("reason", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
async def test_without_ipv6_it_says_nothing(reason: int, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def refuse(host: str, port: int, **hints: int) -> list[Any]:
        if ":" in host:
            raise OSError(reason, "no IPv6")
        return look_up(host, port, **hints)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with capture_logs() as logs:
        (listener,) = await open_listeners(Settings(port=0), ())
    with closing(listener.socket):
        assert listener.socket.getsockname()[0] == "127.0.0.1"
    assert logs == []


async def test_an_address_that_is_found_twice_is_listened_to_once(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    found = socket.getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found * 2)
    listeners = await open_listeners(Settings(host="twice.example", port=port), ())
    assert _names(listeners) == [("127.0.0.1", port)]
    close_listeners(listeners)


async def test_a_taken_port_is_an_error_at_once() -> None:
    async with running(make_app(), Settings()) as server:
        with pytest.raises(OSError, match=f"in use: '127.0.0.1:{server.port}'"):
            await open_listeners(Settings(port=server.port), ())
        # Listeners opened before the error are closed.
        with pytest.raises(OSError, match=f"in use: '127.0.0.1:{server.port}'"):
            await open_listeners(Settings(port=0, listen=(f"127.0.0.1:{server.port}",)), ())


async def test_an_inherited_socket_is_served() -> None:
    with socket.create_server(("127.0.0.1", 0)) as inherited:
        port = inherited.getsockname()[1]
        settings = Settings(port=1)
        loop, drain = AcceptLoop(make_app(), settings), trio.Event()
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners(settings, [inherited])
            addresses: tuple[str, ...] = await nursery.start(loop.run, listeners, drain)
            assert addresses == (f"http://127.0.0.1:{port}",)
            server = Server(addresses, loop, drain, trio.Event())
            assert (await fetch(server, "GET", "/")).body == b"ok"
            drain.set()


async def test_the_host_decides_on_which_addresses_it_listens() -> None:
    async with running(make_app(), Settings(host="0.0.0.0")) as server:
        assert server.address == f"http://0.0.0.0:{server.port}"
        assert (await fetch(server, "GET", "/")).body == b"ok"


@needs_ipv6
async def test_it_listens_on_further_addresses() -> None:
    port = free_port()
    settings = Settings(listen=(f"127.0.0.1:{port}", f"[::1]:{port}"))
    async with running(make_app(), settings) as server:
        for host in ("127.0.0.1", "::1"):
            assert await _first_body(host, port) == b"ok"
        assert await _first_body("127.0.0.1", server.port) == b"ok"


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("[::1]:1", "::1", 1),
        ("a.local:65535", "a.local", 65535),
        ("1.2.3.4:0", "1.2.3.4", 0),
    ],
)
def test_addresses_are_read_and_written_alike(text: str, host: str, port: int) -> None:
    address = parse_listen_address(text)
    assert (address.host, address.port, str(address)) == (host, port, text)


@pytest.mark.parametrize("text", ["", "11434", ":11434", "a:", "a:x", "a:65536", "::1:80", "a:-1", "a:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PORT"):
        parse_listen_address(text)
