"""Connections to checked addresses only: each name is looked up once, and the checked address is used.

A second lookup could return another address (DNS rebinding).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

import httpcore2
import trio

from greenroom.http.media.fetch_rules import FetchRules, not_fetchable
from greenroom.http.media.public_address import is_public

_LOOKUPS = trio.CapacityLimiter(16)
"""Limit on lookup threads: a lookup cannot be cancelled, and must not use up the threads of other work."""
_MAX_ADDRESSES = 8
_CONNECT_SECONDS = 5.0


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses, and to hosts that the operator trusts.

    Args:
        field: Name of the URL's field in the request, for errors.
    """

    def __init__(self, rules: FetchRules, field: str | None) -> None:
        self._rules = rules
        self._field = field
        self._network = httpcore2.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to one of a host's addresses.

        Raises:
            ProblemError: 400: it has no address, or one that is not public.
            httpcore2.ConnectError: No address accepts the connection.
        """
        addresses = await self._look_up(host, port)
        for address in addresses[:-1]:
            try:
                return await self._connect(address, port)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(addresses[-1], port)

    async def _connect(self, address: str, port: int) -> httpcore2.AsyncNetworkStream:
        return await self._network.connect_tcp(address, port, _CONNECT_SECONDS, None, ())

    async def _look_up(self, host: str, port: int) -> list[str]:
        try:
            found = await trio.to_thread.run_sync(
                _addresses, host, port, abandon_on_cancel=True, limiter=_LOOKUPS
            )
        except (OSError, UnicodeError):
            raise not_fetchable(self._field, "names a host that cannot be found") from None
        addresses = found[:_MAX_ADDRESSES]
        if not addresses:
            raise not_fetchable(self._field, "names a host that cannot be found")
        if not self._rules.trusts(host) and not all(map(is_public, addresses)):
            why = "leads to an address that is not public; `[images] fetch_hosts` can name hosts that may"
            raise not_fetchable(self._field, why)
        return addresses


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
