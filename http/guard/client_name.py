"""A name for the client of a request, as far as a server that checks no keys can know it."""

from __future__ import annotations

import ipaddress
from hashlib import blake2b

from werkzeug.datastructures import Headers

IPV6_NETWORK = 64
"""Bits of an IPv6 address that name a network; who has one has all of it (RFC 4291, section 2.5.4)."""


def client_name(headers: Headers, address: str | None) -> str:
    """Return a name for whoever sent a request, for fairness between clients: `address` or `address#key`.

    Time is shared between addresses, and an address's share between the keys in it: behind a proxy all have
    one address, and keys are not checked, so that anybody may send another one each time. The key itself is
    not kept.

    Args:
        headers: With the key as OpenAI's clients send it (`Authorization: Bearer …`), or Anthropic's
            (`x-api-key`).
        address: Of the peer, if it has one.
    """
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    key = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()
    name = _network(address or "")
    return f"{name}#{blake2b(key.encode(), digest_size=8).hexdigest()}" if key else name


def _network(address: str) -> str:
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
        return "127.0.0.1"  # the same machine: `localhost` is either address
    return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK), strict=False))
