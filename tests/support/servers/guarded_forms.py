"""Requests that Greenroom refuses in every form in which another program serves it."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import httpx2

from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings

GUARDED = Settings(max_body_bytes=MEGABYTE, shutdown_timeout=60.0, api_key="sesame")
KEY = {"authorization": "Bearer sesame"}
REFUSED = {"no key": 401, "other host": 403, "other origin": 403, "large": 413, "deep": 413, "late body": 2}


def refusals(address: str) -> dict[str, int]:
    """Return the statuses of requests that `GUARDED` does not allow, and the answers beside a late body.

    Args:
        address: Address with the prefix.
    """
    deep = b'{"model": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    with httpx2.Client(base_url=address, timeout=600, headers=KEY) as http:
        assert http.get("/v1/models").status_code == 200

        def asked(content: bytes = b"{}", **headers: str) -> int:
            typed = {"content-type": "application/json", **headers}
            return http.post("/v1/chat/completions", content=content, headers=typed).status_code

        return {
            "no key": asked(authorization=""),
            "other host": asked(host="evil.example"),
            "other origin": asked(origin="https://evil.example"),
            "large": asked(b" " * 2 * MEGABYTE),
            "deep": asked(deep),
            "late body": _late_body(address),
        }


def _head(address: str, size: int) -> bytes:
    url = urlsplit(address)
    first = f"POST {url.path}/v1/chat/completions HTTP/1.1", f"host: {url.netloc}"
    more = "content-type: application/json", f"content-length: {size}"
    return "\r\n".join((*first, *more, "", "")).encode()


def _late_body(address: str) -> int:
    """Return the number of answers on one connection to two requests, of which the first is refused before
    its body comes.
    """
    head, received = _head(address, 2), b""
    with _connected(address) as connection:
        connection.sendall(head)
        while b"\r\n\r\n" not in received:
            received += connection.recv(65_536)
        connection.sendall(b"{}" + head + b"{}")
        while received.count(b"HTTP/1.1 401") < 2 and (more := connection.recv(65_536)):
            received += more
    return received.count(b"HTTP/1.1 401")


def _connected(address: str) -> socket.socket:
    url = urlsplit(address)
    return socket.create_connection((url.hostname, url.port or 80), timeout=60)
