"""Addresses on which a server listens."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings.settings import Settings


@attrs.frozen
class ListenAddress:
    """A host name or IP address with a TCP port; port 0 selects a free one."""

    host: str
    port: int

    @property
    def is_localhost(self) -> bool:
        """True if the host is `localhost`: the loopback addresses of both IPv4 and IPv6."""
        return self.host.lower().rstrip(".") == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Parse an address such as `127.0.0.1:11434`, `[::1]:11434` or `studio.local:11434`.

    Raises:
        ValueError: The text has another form.
    """
    host, colon, port = text.rpartition(":")
    bare = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bare else host
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError("must be HOST:PORT")
    if ":" in host and not bare:
        raise ValueError("must be [ADDRESS]:PORT")
    return ListenAddress(host, int(port))


def listen_addresses(settings: Settings) -> list[ListenAddress]:
    """Return all listen addresses of a server, starting with `settings.host` and `settings.port`."""
    return [ListenAddress(settings.host, settings.port), *map(parse_listen_address, settings.listen)]
