"""The sockets on which connections are accepted."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import trio

from greenroom.schemas.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings import Settings


async def open_listeners(settings: Settings, inherited: Sequence[socket.socket]) -> list[trio.SocketListener]:
    """Return the sockets to accept from: the inherited ones, else those of the settings' addresses.

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
            listeners += await _open(address)
    except OSError as error:
        close_listeners(listeners)
        raise OSError(error.errno, error.strerror or str(error), str(address)) from error
    return listeners


def close_listeners(listeners: Sequence[trio.SocketListener]) -> None:
    """Accept no more connections."""
    for listener in listeners:
        listener.socket.close()


async def _open(address: ListenAddress) -> list[trio.SocketListener]:
    listeners = await trio.open_tcp_listeners(address.port, host=address.host)
    if address.port == 0:
        # A name with several addresses would get a different port on each.
        close_listeners(listeners[1:])
        del listeners[1:]
    return listeners
