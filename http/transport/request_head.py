"""What the head of a request must be, before an application sees it."""

from __future__ import annotations

import re

import h11
from werkzeug.datastructures import Headers

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


def client_of(request: h11.Request | None) -> tuple[str, Headers]:
    """Return the path and the headers by which a client's protocol is known; empty if it sent none."""
    if request is None:
        return "", Headers()
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return _path(request.target), Headers(fields)


def client_of_head(head: bytes) -> tuple[str, Headers]:
    """Return the same of the beginning of a head that nobody has looked at, as far as it is there."""
    first, *lines = head.split(b"\r\n\r\n")[0].split(b"\r\n")
    words = first.split(b" ")
    shown = (text for line in lines if (text := line.decode("latin-1")).isprintable())
    fields = (text.partition(":") for text in shown)
    headers = Headers([(name, value.strip()) for name, colon, value in fields if colon])
    return _path(words[1] if len(words) > 1 else b""), headers


def _path(target: bytes) -> str:
    absolute = _ABSOLUTE.match(target)
    path = target[absolute.end() - 1 :] if absolute is not None else target
    return path.partition(b"?")[0].decode("latin-1")
