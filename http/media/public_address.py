"""Test for public network addresses, the only ones that clients may make the server connect to."""

from __future__ import annotations

import ipaddress

_IPV6_THAT_LEADS_ELSEWHERE = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "::/96",  # IPv4-compatible
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",  # NAT64 of a local network
        "100::/64",  # discarded
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local
    )
)
"""IPv6 networks that are not public, or whose addresses may embed an IPv4 address that is not."""

_IPV4_RELAYS = ipaddress.IPv4Network("192.88.99.0/24")


def is_public(address: str) -> bool:
    """Return whether an address is on the public network and belongs to a single host.

    Args:
        address: Address as returned by `getaddrinfo`.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if not parsed.is_global or parsed.is_multicast or parsed.is_reserved:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return parsed not in _IPV4_RELAYS
    return parsed.scope_id is None and not any(parsed in network for network in _IPV6_THAT_LEADS_ELSEWHERE)
