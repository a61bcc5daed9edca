"""Listening sockets of the server."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

import trio

from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.settings import Settings

log = get_logger(actor="http")

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""Errors of a machine without ::1."""
_FREE_PORTS = 16
"""Attempts to find a port that is free on both loopback addresses."""


async def open_listeners(settings: Settings, inherited: Sequence[socket.socket]) -> list[trio.SocketListener]:
    """Return the listening sockets: inherited ones, else new ones on the addresses of the settings.

    Raises:
        OSError: An address cannot be bound; its `filename` says which.
    """
    if inherited:
        for sock in inherited:
            sock.setblocking(False)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in inherited]
    listeners: list[trio.SocketListener] = []
    try:
        for address in listen_addresses(settings):
            listeners += await (_open_loopback(address.port) if address.is_localhost else _open(address))
    except OSError:
        close_listeners(listeners)
        raise
    return listeners


def close_listeners(listeners: Sequence[trio.SocketListener]) -> None:
    """Close the listening sockets."""
    for listener in listeners:
        listener.socket.close()


async def _open_loopback(port: int, attempts: int = _FREE_PORTS) -> list[trio.SocketListener]:
    """Return listeners on 127.0.0.1 and, where there is IPv6, on the same port of ::1.

    Clients that try ::1 first for `localhost` must not reach another program there. If one already listens on
    ::1, the server starts anyway and logs a warning.
    """
    listeners = await _open(ListenAddress("127.0.0.1", port))
    second = ListenAddress("::1", listeners[0].socket.getsockname()[1])
    try:
        return listeners + await _open(second)
    except OSError as error:
        if error.errno in _NO_IPV6:
            return listeners
        if port == 0 and attempts > 1:
            close_listeners(listeners)
            return await _open_loopback(port, attempts - 1)
        log.warning(
            "not listening on ::1",
            address=str(second),
            reason=error.strerror,
            danger="clients that try ::1 first for localhost reach whatever program listens there",
            instead=f"http://127.0.0.1:{second.port}",
        )
        return listeners


async def _open(address: ListenAddress) -> list[trio.SocketListener]:
    try:
        listeners = await trio.open_tcp_listeners(address.port, host=address.host)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(address)) from error
    if address.port == 0:
        # Each address of a host name would get a different port.
        close_listeners(listeners[1:])
        del listeners[1:]
    return listeners
