"""Reach of a server: whether programs of other machines can connect to its addresses."""

from __future__ import annotations

import ipaddress

from greenroom.schemas.settings.listen_address import listen_addresses
from greenroom.schemas.settings.settings import Settings


def find_reachable(settings: Settings) -> str | None:
    """Return the first address of the settings that other machines may reach; None if there is none."""
    return next((address.host for address in listen_addresses(settings) if is_reachable(address.host)), None)


def is_reachable(host: object) -> bool:
    """Return whether other machines may reach a host name or address; a name may mean any address.

    Args:
        host: A name or an address. What is no text, such as the name of a Unix socket in the abstract
            namespace, belongs to this machine.
    """
    if not isinstance(host, str) or host.startswith("/") or host.lower().rstrip(".") == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
