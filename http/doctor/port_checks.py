"""Examine the addresses on which a server would listen."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from greenroom.http.doctor.finding import Finding
from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.settings import Settings

_SECONDS = 2.0


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Yield for each address whether it can be bound, or is a running Greenroom's."""
    for address in listen_addresses(settings):
        bound = ListenAddress("127.0.0.1", address.port) if address.is_localhost else address
        error = _bind(bound)
        if error is None:
            yield Finding("port", f"{address} is free")
        elif error.errno == errno.EADDRINUSE:
            yield from _ask(address, bound)
        else:
            yield Finding("port", f"{address} cannot be bound: {error.strerror or error}", wrong=True)


def _bind(address: ListenAddress) -> OSError | None:
    try:
        places = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, place in places:
            with socket.socket(family, kind, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(place)
    except OSError as error:
        return error
    return None


def _ask(address: ListenAddress, bound: ListenAddress) -> Iterator[Finding]:
    import httpx2

    unspecified = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    reached = ListenAddress(unspecified.get(bound.host, bound.host), bound.port)
    try:
        told = httpx2.get(f"http://{reached}/admin/status", timeout=_SECONDS, trust_env=False).json()
        known = f"greenroom {told['version']} (process {told['pid']})"
        problems = [str(problem) for problem in told["problems"]]
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        yield Finding("port", f"{address} is in use by another program: use --port", wrong=True)
        return
    yield Finding("port", f"{address} is in use by {known}")
    yield from (Finding("server", problem, wrong=True) for problem in problems)
