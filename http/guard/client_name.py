"""Names of clients, from their address and an unchecked API key."""

from __future__ import annotations

import ipaddress
from hashlib import blake2b

from werkzeug.datastructures import Headers

IPV6_NETWORK = 64
"""Prefix length of an IPv6 network, which usually belongs to one client (RFC 4291, section 2.5.4)."""


UNIX_CLIENT = "unix"
"""Address of the clients of a Unix socket, which have none of their own."""


def client_name(headers: Headers, address: str | None) -> str:
    """Return a name for the client, for fairness between clients: `address` or `address#key`.

    Addresses share the server fairly, and keys share their address. All clients behind a proxy have the same
    address, while keys are unchecked and could differ in every request. Only a hash of the key is kept.

    Args:
        headers: Headers of the request, with a key in OpenAI's form (`Authorization: Bearer …`) or
            Anthropic's (`x-api-key`).
        address: Address of the peer, if it has one.
    """
    name = network_of(address or "")
    keys = presented_keys(headers)
    return f"{name}#{blake2b(keys[0].encode(), digest_size=8).hexdigest()}" if keys else name


def presented_keys(headers: Headers) -> list[str]:
    """Return the API keys that a request brings, unchecked: clients may send several in different headers."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    bearer = token if scheme.lower() == "bearer" else ""
    given = (bearer, headers.get("x-api-key", ""), headers.get("local-api-key", ""))
    return [key for each in given if (key := each.strip())]


def network_of(address: str) -> str:
    """Return the name of an address's owner: the address, or its network in IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    mapped = parsed.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    if parsed.is_loopback:
        return "127.0.0.1"  # `localhost` may resolve to either loopback address
    return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK), strict=False))
