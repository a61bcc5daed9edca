"""Examine the addresses on which a server would listen."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import closing

import click

from greenroom.http.doctor.finding import Finding
from greenroom.http.terminal.admin_client import AdminClient, running_server
from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.settings import Settings


def check_ports(settings: Settings) -> Iterator[Finding]:
    """Yield for each address whether it can be bound, or is a running Greenroom's."""
    for address in listen_addresses(settings):
        if address.is_path:
            if running_server(str(address)) is None:
                yield Finding("port", f"{address} is a Unix socket of this machine")
            else:
                yield from _ask(address, address, settings)
            continue
        bound = ListenAddress("127.0.0.1", address.port) if address.is_localhost else address
        error = _bind(bound)
        if error is None:
            yield Finding("port", f"{address} is free")
        elif error.errno == errno.EADDRINUSE:
            yield from _ask(address, bound, settings)
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


def _ask(address: ListenAddress, bound: ListenAddress, settings: Settings) -> Iterator[Finding]:
    unspecified = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    reached = ListenAddress(unspecified.get(bound.host, bound.host), bound.port)
    usual = "https" if settings.tls_certificate else "http"
    urls = (
        (str(bound),)
        if bound.is_path
        else (f"{usual}://{reached}", f"https://{reached}", f"http://{reached}")
    )
    url = next((each for each in urls if running_server(each) is not None), urls[0])
    own = running_server(url)
    known = "a Greenroom server" if own is None else f"greenroom (process {own.pid})"
    try:
        with closing(AdminClient(url)) as client:
            told = client.status()
        if told is not None:
            known = f"greenroom {told['version']} (process {told['pid']})"
            problems = [str(problem)[:500] for problem in told["problems"][:20]]
    except click.ClickException as refused:
        yield Finding("port", f"{address} is in use by {known}; its problems are not told: {refused.message}")
        return
    except (ValueError, KeyError, TypeError):
        told = None
    if told is None:
        yield Finding("port", f"{address} is in use by another program: use --port", wrong=True)
        return
    yield Finding("port", f"{address} is in use by {known}")
    yield from (Finding("server", problem, wrong=True) for problem in problems)
