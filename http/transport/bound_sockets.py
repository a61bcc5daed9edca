"""Sockets bound to the server's addresses, without Trio: a supervising parent binds them too."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from greenroom.schemas.settings.listen_address import ListenAddress, listen_addresses
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    import trio

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)  # Errors of a machine without ::1
_FREE_PORTS = 16  # Attempts to find a port that is free on both loopback addresses
_PROBE_SECONDS = 1.0
_BACKLOG = 0xFFFF  # Longest queue of connections; the system takes the longest that it allows

Warn = Callable[..., None]
"""Function that logs an event with its fields as a warning."""


def bind_sockets(settings: Settings, warn: Warn) -> list[socket.socket]:
    """Return listening sockets on all addresses of the settings. This may wait for a name server. Raises
    OSError: an address cannot be bound; its `filename` says which.
    """
    bound: list[socket.socket] = []
    try:
        for address in listen_addresses(settings):
            if address.is_path:
                bound.append(bind_path(address.host))
            else:
                bound += _bind_loopback(address.port, warn) if address.is_localhost else _bind(address)
    except OSError:
        remove_paths(unix_paths(bound))
        _close(bound)
        raise
    return bound


def _bind_loopback(port: int, warn: Warn, attempts: int = _FREE_PORTS) -> list[socket.socket]:
    """Return sockets on 127.0.0.1 and, where there is IPv6, on the same port of ::1.

    Clients that try ::1 first for `localhost` must not reach another program there. If one already listens on
    ::1, the server starts anyway and logs a warning.
    """
    bound = _bind(ListenAddress("127.0.0.1", port))
    second = ListenAddress("::1", bound[0].getsockname()[1])
    try:
        return bound + _bind(second)
    except OSError as error:
        if error.errno in _NO_IPV6:
            return bound
        if port == 0 and attempts > 1:
            _close(bound)
            return _bind_loopback(port, warn, attempts - 1)
        warn(
            "not listening on ::1",
            address=str(second),
            reason=error.strerror,
            danger="clients that try ::1 first for localhost reach whatever program listens there",
            instead=f"http://127.0.0.1:{second.port}",
        )
        return bound


def _bind(address: ListenAddress) -> list[socket.socket]:
    """Return sockets on each address that a host name stands for; with port 0 only on the first."""
    bound: list[socket.socket] = []
    unsupported: OSError | None = None
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # glibc tells an address twice for a name that /etc/hosts has for both loopback addresses.
        for family, place in dict.fromkeys((family, place) for family, *_, place in found):
            try:
                bound.append(_listening(family, place))
            except OSError as error:
                if error.errno != errno.EAFNOSUPPORT:
                    raise
                unsupported = error  # a machine with IPv4 alone may still find IPv6 addresses
            if bound and address.port == 0:
                break  # each address of a host name would get a different port
        if unsupported is not None and not bound:
            raise unsupported
    except OSError as error:
        _close(bound)
        raise OSError(error.errno, error.strerror or str(error), str(address)) from error
    return bound


def _listening(family: int, place: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier server that are still closing do not keep the address.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(place)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def bind_path(path: str) -> socket.socket:
    """Return a Unix socket that only this user can connect to; one that a dead server left is removed. Raises
    OSError: another server listens there, or it cannot be bound; its `filename` is the path.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        sock.bind(path)
        os.chmod(path, 0o600)  # before it listens, so that nobody connects to it with other rights
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, error.strerror or str(error), f"unix:{path}") from error
    return sock


@attrs.frozen
class BoundPath:
    """The path of a Unix socket, and the file that was there when it was bound. `file`: device, inode and
    time of its making: file systems give the inode of a removed file to the next.
    """

    path: str
    file: tuple[int, int, int]


def unix_paths(sockets: Iterable[socket.socket | trio.socket.SocketType]) -> list[BoundPath]:
    """Return the paths of the Unix sockets among these, which were just bound."""
    paths = [str(sock.getsockname()) for sock in sockets if sock.family == socket.AF_UNIX]
    return [BoundPath(path, found) for path in paths if (found := _file(path)) is not None]


def remove_paths(paths: Iterable[BoundPath]) -> None:
    """Remove Unix sockets at the end of the server that has bound them, unless they are another's by now."""
    for bound in paths:
        if is_present(bound):
            with contextlib.suppress(OSError):
                os.unlink(bound.path)


def is_present(bound: BoundPath) -> bool:
    return _file(bound.path) == bound.file


def _file(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _remove_dead(path: str) -> None:
    """Remove a Unix socket on which nobody listens; anything else stays, and cannot be bound."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(_PROBE_SECONDS)
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _close(sockets: Sequence[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
