"""Where a server listens."""

from __future__ import annotations

import attrs

from greenroom.schemas.settings import Settings


@attrs.frozen
class ListenAddress:
    """A host, by name or address, and a TCP port; 0 is a free one."""

    host: str
    port: int

    @property
    def is_localhost(self) -> bool:
        """Whether it means this machine's loopback addresses, of both versions of IP."""
        return self.host.lower().rstrip(".") == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """Return `127.0.0.1:11434`, `[::1]:11434` or `studio.local:11434` in its two parts.

    Raises:
        ValueError: It is none of these.
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
    """Return all addresses of a server, `settings.host` and `.port` first."""
    return [ListenAddress(settings.host, settings.port), *map(parse_listen_address, settings.listen)]
