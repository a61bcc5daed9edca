"""Which requests are answered: those of known hosts, and of no web page unless its origin is allowed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from werkzeug.datastructures import Headers
from werkzeug.sansio.utils import host_is_trusted

from greenroom.http.guard.content_encoding import UNSUPPORTED_ENCODING, content_encoding, new_decoder
from greenroom.schemas.listen_address import listen_addresses
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings import Settings

FORM_TYPE = "multipart/form-data"
BODY_TYPES = ("application/json", FORM_TYPE)
_PREFLIGHT_AGE = "600"


class HostGuard:
    """Decides from the head of a request alone.

    A web page may be made to reach this machine through a domain that its owner points here (DNS
    rebinding): its requests carry that domain as Host. Names can be pointed here, addresses cannot; so any
    address is fine, and only known names are. Requests of scripts of other sites carry an Origin.
    """

    def __init__(self, settings: Settings) -> None:
        listened = (address.host for address in listen_addresses(settings))
        own = ("localhost", *listened, *own_names())
        self._hosts = {name.lower().rstrip(".") for name in (*own, *settings.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    def find_problem(self, headers: Headers) -> Problem | None:
        """Return why a request is refused, or None if it may be answered."""
        host = headers.get("Host", "")
        if host and not self._is_known(host):
            detail = f"This server does not answer to the name '{host[:200]}'. Add it to allowed_hosts."
            return Problem(403, "host_not_allowed", detail)
        origin = headers.get("Origin", "")
        if "Origin" in headers and not self.allows_origin(origin):
            detail = f"Pages of '{origin[:200]}' may not use this server. Add it to allowed_origins."
            return Problem(403, "origin_not_allowed", detail)
        if "Origin" not in headers and self._is_embedded_elsewhere(headers):
            detail = "Pages of other sites may not use this server. Add theirs to allowed_origins."
            return Problem(403, "origin_not_allowed", detail)
        return None

    def find_body_problem(self, mimetype: str, headers: Headers) -> Problem | None:
        """Return why a body is not even read, or None if it may be."""
        if mimetype not in BODY_TYPES:
            given = mimetype or "a body of no type"
            detail = f"Send {BODY_TYPES[0]}, or {BODY_TYPES[1]} where a file is uploaded, not {given}."
            return Problem(415, "unsupported_media_type", detail[:300])
        encoding = content_encoding(headers)
        if mimetype == FORM_TYPE and encoding.strip().lower() not in ("", "identity"):
            detail = "Forms are not taken compressed: send it without Content-Encoding."
            return Problem(415, UNSUPPORTED_ENCODING, detail)
        try:
            new_decoder(encoding)
        except ProblemError as refused:
            return refused.problem
        return None

    def allows_origin(self, origin: str) -> bool:
        """Return whether pages of that origin may call the server."""
        return "*" in self._origins or origin.lower().rstrip("/") in self._origins

    def cors_headers(self, origin: str) -> dict[str, str]:
        """Return headers that let the browser show an answer to a page of an allowed origin."""
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": "x-request-id, request-id, retry-after",
            "vary": "Origin",
        }

    def preflight_headers(self, headers: Headers, methods: Iterable[str]) -> dict[str, str]:
        """Return the headers of the answer to a preflight request.

        Args:
            methods: That routes of the server have. For a path without such a route the page shall read why.
        """
        requested = headers.get("Access-Control-Request-Headers", "")
        allowed = {
            "access-control-allow-methods": ", ".join(sorted(methods)),
            "access-control-allow-headers": requested if requested.isprintable() else "",
            "access-control-max-age": _PREFLIGHT_AGE,
        }
        if headers.get("Access-Control-Request-Private-Network") == "true":
            allowed["access-control-allow-private-network"] = "true"
        return allowed

    def _is_embedded_elsewhere(self, headers: Headers) -> bool:
        """Return whether a page of another site asks, as for an image: browsers then name no origin.

        A link that its reader follows is none of that page's any more (W3C Fetch Metadata, section 2).
        """
        followed = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        cross_site = headers.get("Sec-Fetch-Site", "").strip().lower() == "cross-site"
        return cross_site and not followed and "*" not in self._origins

    def _is_known(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name in self._hosts or name.endswith(".localhost") or "*" in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def own_names() -> tuple[str, ...]:
    """Return this machine's name, and the one that it has in its network's multicast DNS (RFC 6762).

    A Mac's name ends as its network says (`studio.local`, `studio.fritz.box`); `studio.local` stays its own.
    """
    name = socket.gethostname()
    label = name.partition(".")[0]
    return (name, f"{label}.local") if label and label.lower() != "localhost" else (name,)


def host_name(host: str) -> str | None:
    """Return the name in a Host header, `[::1]:8000` → `::1`; None if it is neither name nor address."""
    # A port may be left empty (RFC 9110, 4.2.3), and names of containers have underscores.
    host = host.strip().lower().removesuffix(":")
    if not host_is_trusted(host.replace("_", "-")):
        return None
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.partition(":")[0].rstrip(".")
    try:
        # Quart binds its routes to the name, and fails where a label is empty or longer than DNS has them.
        name.encode("idna")
    except UnicodeError:
        return None
    return name or None
