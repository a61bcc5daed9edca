"""Who may speak to this server: no page in the user's browser, under no borrowed name."""

from __future__ import annotations

import ipaddress
import socket

from werkzeug.datastructures import Headers

from greenroom.schemas.problems import Problem
from greenroom.schemas.settings import Settings

BODY_TYPES = ("application/json", "multipart/form-data")
METHODS = "GET, POST, HEAD, OPTIONS"
_PREFLIGHT_AGE = "600"


class HostGuard:
    """Decides from a request's head alone.

    A web page may be made to reach this machine through a domain that its owner points here (DNS
    rebinding): its requests carry that domain as Host. Addresses cannot be borrowed so, names can; so any
    address is fine, and only known names are. Requests of other sites' scripts carry an Origin.
    """

    def __init__(self, settings: Settings) -> None:
        own = ("localhost", settings.host, socket.gethostname())
        self._hosts = {name.lower().rstrip(".") for name in (*own, *settings.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    def refuses(self, method: str, headers: Headers) -> Problem | None:
        """Why the request is not answered, or None if it may be."""
        host = headers.get("Host", "")
        if host and not self._knows(host):
            detail = f"This server does not answer to the name '{host[:200]}'. Add it to allowed_hosts."
            return Problem(403, "host_not_allowed", detail)
        origin = headers.get("Origin", "")
        if "Origin" in headers and not self.allows_origin(origin):
            detail = f"Pages of '{origin[:200]}' may not use this server. Add it to allowed_origins."
            return Problem(403, "origin_not_allowed", detail)
        return None

    def refuses_body(self, mimetype: str, headers: Headers) -> Problem | None:
        """Why a body is not even read."""
        if mimetype not in BODY_TYPES:
            detail = f"Send {' or '.join(BODY_TYPES)}, not {mimetype or 'a body of no type'}."
            return Problem(415, "unsupported_media_type", detail[:300])
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            detail = "Compressed bodies are not taken: send it without Content-Encoding."
            return Problem(415, "unsupported_content_encoding", detail)
        return None

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of that origin may call the server."""
        return "*" in self._origins or origin.lower().rstrip("/") in self._origins

    def grants(self, origin: str) -> dict[str, str]:
        """Headers that let the browser show an answer to a page of an allowed origin."""
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "x-request-id, retry-after",
            "vary": "Origin",
        }

    def preflight(self, headers: Headers) -> dict[str, str]:
        """The answer to a browser that asks before it sends."""
        asked = headers.get("Access-Control-Request-Headers", "")
        granted = {
            "access-control-allow-methods": METHODS,
            "access-control-allow-headers": asked if asked.isprintable() else "",
            "access-control-max-age": _PREFLIGHT_AGE,
        }
        if headers.get("Access-Control-Request-Private-Network") == "true":
            granted["access-control-allow-private-network"] = "true"
        return granted

    def _knows(self, host: str) -> bool:
        name = _host_name(host)
        if name in self._hosts or name.endswith(".localhost") or "*" in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _host_name(host: str) -> str:
    """`[::1]:8000` → `::1`, `Localhost.:8000` → `localhost`."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).rstrip(".")
