"""Addresses on which a server listens."""

from __future__ import annotations

import os

import attrs

from greenroom.schemas.settings.settings import Settings

UNIX = "unix:"
"""Beginning of the address of a Unix socket."""
LONGEST_PATH = 103
"""Most bytes of the path of a Unix socket: what macOS takes."""


@attrs.frozen
class ListenAddress:
    """A host name or IP address with a TCP port; port 0 selects a free one.

    Args:
        host: Host name, address, or the absolute path of a Unix socket, which has no port.
    """

    host: str
    port: int

    @property
    def is_localhost(self) -> bool:
        """True if the host is `localhost`: the loopback addresses of both IPv4 and IPv6."""
        return self.host.lower().rstrip(".") == "localhost"

    @property
    def is_path(self) -> bool:
        return self.host.startswith("/")

    def __str__(self) -> str:
        if self.is_path:
            return f"{UNIX}{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Parse an address such as `127.0.0.1:11434`, `[::1]:11434`, `studio.local:11434` or `unix:/run/a.sock`.

    Raises:
        ValueError: The text has another form.
    """
    if text.startswith(UNIX):
        path = os.path.expanduser(text.removeprefix(UNIX))
        if not path.startswith("/") or not 1 < len(os.fsencode(path)) <= LONGEST_PATH or "\0" in path:
            raise ValueError(f"must be unix:/PATH of at most {LONGEST_PATH} bytes")
        return ListenAddress(path, 0)
    host, colon, port = text.rpartition(":")
    bare = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bare else host
    if not (colon and host and "/" not in host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("must be HOST:PORT")
    if ":" in host and not bare:
        raise ValueError("must be [ADDRESS]:PORT")
    return ListenAddress(host, int(port))


def listen_addresses(settings: Settings) -> list[ListenAddress]:
    """Return all listen addresses of a server, starting with `settings.host` and `settings.port`."""
    return [ListenAddress(settings.host, settings.port), *map(parse_listen_address, settings.listen)]
