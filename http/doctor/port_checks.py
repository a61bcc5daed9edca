"""Examine the addresses on which a server would listen."""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from greenroom.http.doctor.finding import Finding
from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.settings import Settings

_SECONDS = 5.0
"""Time limit of a whole answer; any program may listen there, also one that sends a byte now and then."""
_MAX_BYTES = 1_000_000


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Yield for each address whether it can be bound, or is a running Greenroom's."""
    for address in listen_addresses(settings):
        if address.is_path:
            yield Finding("port", f"{address} is a Unix socket of this machine")
            continue
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
    unspecified = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    reached = ListenAddress(unspecified.get(bound.host, bound.host), bound.port)
    try:
        told = _status(f"http://{reached}/admin/status")
        known = f"greenroom {told['version']} (process {told['pid']})"
        problems = [str(problem)[:500] for problem in told["problems"][:20]]
    except (ValueError, KeyError, TypeError):
        yield Finding("port", f"{address} is in use by another program: use --port", wrong=True)
        return
    yield Finding("port", f"{address} is in use by {known}")
    yield from (Finding("server", problem, wrong=True) for problem in problems)


def _status(url: str) -> Any:
    """Return the JSON at a URL.

    Raises:
        ValueError: There is none, or it is too long or too slow.
    """
    import httpx2

    received, until = b"", time.monotonic() + _SECONDS
    try:
        with httpx2.stream("GET", url, timeout=_SECONDS, trust_env=False) as response:
            for piece in response.iter_raw():
                received += piece
                if len(received) > _MAX_BYTES or time.monotonic() > until:
                    raise ValueError("no answer of a server of ours")
    except httpx2.HTTPError as error:
        raise ValueError(str(error)) from error
    return json.loads(received)
