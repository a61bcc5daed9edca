"""A free port for a program that is told its port, and may be restarted on the same one."""

from __future__ import annotations

import errno
import itertools
import os
import socket

_NUMBERS = itertools.count(101 * os.getpid())  # of each process that runs tests its own


def free_port() -> int:
    """Return a port that is free on both loopback addresses, and that no system gives to others by itself."""
    ports = (20_000 + number % 12_000 for number in _NUMBERS)
    loopback = (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))
    return next(port for port in ports if all(_is_free(host, port, family) for host, family in loopback))


def _is_free(host: str, port: int, family: socket.AddressFamily) -> bool:
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True
