"""What the head of a request must be, before an application sees it."""

from __future__ import annotations

import re

import h11

from greenroom.http.guard.host_guard import host_name

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)[/?]", re.IGNORECASE)


def has_two_lengths(request: h11.Request) -> bool:
    """Return whether a body is chunked and has a Content-Length too (RFC 9112, 6.3).

    A proxy that goes by the other one would pass a part of it on as another client's request.
    """
    names = {name for name, _ in request.headers}
    return b"transfer-encoding" in names and b"content-length" in names


def is_well_formed(request: h11.Request) -> bool:
    """Return whether a request names a target and a host as HTTP has them (RFC 9112, 3.2).

    An address as proxies are sent it must name the host that the Host header names: that one is guarded.
    """
    host = dict(request.headers).get(b"host", b"").strip()
    if host and host_name(host.decode("latin-1")) is None:
        return False
    target = request.target
    if target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS"):
        return True
    absolute = _ABSOLUTE.match(target)
    return absolute is not None and absolute.group(1).lower() == host.lower()
