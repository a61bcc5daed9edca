"""Access control by Host and Origin headers."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from hashlib import blake2b

from quart import Blueprint, request
from werkzeug.datastructures import Headers
from werkzeug.sansio.utils import host_is_trusted

from greenroom.http.guard.content_encoding import UNSUPPORTED_ENCODING, content_encoding, new_decoder
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.listen_address import listen_addresses
from greenroom.schemas.settings.settings import Settings

FORM_TYPE = "multipart/form-data"
BODY_TYPES = ("application/json", FORM_TYPE)
_CONTAINER_NAMES = ("host.docker.internal", "host.containers.internal")
"""This machine's names within its containers. ICANN reserved `.internal`: no web site has a name in it."""
_PREFLIGHT_AGE = "600"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_EXPOSED = (
    "x-request-id",
    "request-id",
    "x-client-request-id",
    "traceparent",
    "retry-after",
    "x-should-retry",
    "x-greenroom-notice",
    "x-greenroom-backend",
    *(
        f"x-ratelimit-{figure}-{kind}"
        for figure in ("limit", "remaining", "reset")
        for kind in ("requests", "tokens")
    ),
    *(
        f"anthropic-ratelimit-{kind}-{figure}"
        for kind in ("requests", "tokens", "input-tokens", "output-tokens")
        for figure in ("limit", "remaining", "reset")
    ),
)
"""Response headers that scripts of allowed pages may read."""


class HostGuard:
    """Admits requests by their headers alone.

    A web page can reach this machine through a domain that its owner points here (DNS rebinding); its
    requests carry that domain as Host. Names can be pointed here, addresses cannot: any address is accepted,
    but only known names. Requests of scripts from other sites carry an Origin.
    """

    def __init__(self, settings: Settings) -> None:
        self.update(settings)

    def update(self, settings: Settings) -> None:
        listened = (address.host for address in listen_addresses(settings))
        own = ("localhost", *listened, *own_names(), *_CONTAINER_NAMES)
        self._hosts = {name.lower().rstrip(".") for name in (*own, *settings.allowed_hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    def find_problem(
        self, headers: Headers, scheme: str = "http", http_version: str = "1.1"
    ) -> Problem | None:
        """Return the reason to refuse a request; None to admit it. `scheme`: scheme of the connection, `http`
        or `https`; `http_version`: version of the request; HTTP/1.0 needs no Host.
        """
        host = headers.get("Host", "").strip()
        if "Host" in headers and not host and http_version != "1.0":
            return Problem(400, "invalid_host", "The header Host is empty; name the server there.")
        if host and not self._is_known(host):
            detail = f"This server does not answer to the name '{host[:200]}'. Add it to allowed_hosts."
            return Problem(403, "host_not_allowed", detail)
        origin = headers.get("Origin", "")
        if "Origin" in headers and not (self.allows_origin(origin) or self._is_own(origin, scheme, host)):
            detail = f"Pages of '{origin[:200]}' may not use this server. Add it to allowed_origins."
            return Problem(403, "origin_not_allowed", detail)
        if "Origin" not in headers and self._is_embedded_elsewhere(headers):
            detail = "Pages of other sites may not use this server. Add theirs to allowed_origins."
            return Problem(403, "origin_not_allowed", detail)
        return None

    def find_body_problem(self, mimetype: str, headers: Headers) -> Problem | None:
        """Return the reason to refuse a body unread; None to admit it."""
        if mimetype not in BODY_TYPES:
            given = mimetype or "a body of no type"
            detail = f"Send {BODY_TYPES[0]}, or {BODY_TYPES[1]} where a file is uploaded, not {given}."
            return Problem(415, "unsupported_media_type", detail[:300])
        encoding = content_encoding(headers)
        if mimetype == FORM_TYPE and encoding.strip().lower() not in ("", "identity"):
            detail = "Compressed forms are not supported: send the form without Content-Encoding."
            return Problem(415, UNSUPPORTED_ENCODING, detail)
        try:
            new_decoder(encoding)
        except ProblemError as refused:
            return refused.problem
        return None

    def allows_origin(self, origin: str) -> bool:
        return "*" in self._origins or origin.lower().rstrip("/") in self._origins

    def cors_headers(self, origin: str) -> dict[str, str]:
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": ", ".join(_EXPOSED),
        }

    def preflight_headers(self, headers: Headers, methods: Iterable[str]) -> dict[str, str]:
        """Return the headers of a response to a preflight request. `methods`: methods of all routes. They are
        allowed on unknown paths too, so that the page can read the error.
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
        """Return whether another origin's page embeds the URL, e.g. as an image, without an Origin.

        Pages of other ports of this machine are of the same site. Links that a user follows do not count
        (W3C Fetch Metadata, section 2).
        """
        followed = headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document"
        other = headers.get("Sec-Fetch-Site", "").strip().lower() in ("cross-site", "same-site")
        return other and not followed and "*" not in self._origins

    def _is_own(self, origin: str, scheme: str, host: str) -> bool:
        """Return whether a page of this server itself sent the request.

        With any host allowed, a name that is merely pointed here (DNS rebinding) would be one of its own; so
        `*` does not count.
        """
        port = _DEFAULT_PORTS.get(scheme, "")
        own = f"{scheme}://{host.strip().lower().removesuffix(':').removesuffix(port)}"
        return bool(host) and origin.lower().removesuffix(port) == own and self._is_named(host)

    def _is_known(self, host: str) -> bool:
        return self._is_named(host) or ("*" in self._hosts and host_name(host) is not None)

    def _is_named(self, host: str) -> bool:
        name = host_name(host)
        if name is None:
            return False
        if name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def own_names() -> tuple[str, ...]:
    """Return this machine's host name and its multicast DNS name (RFC 6762).

    The suffix of a Mac's host name depends on the network (`studio.local`, `studio.fritz.box`), but the name
    `studio.local` always works.
    """
    name = socket.gethostname()
    label = name.partition(".")[0]
    return (name, f"{label}.local") if label and label.lower() != "localhost" else (name,)


def host_name(host: str) -> str | None:
    """Return the name in a Host header, `[::1]:8000` → `::1`; None if it is neither name nor address."""
    # A port may be empty (RFC 9110, 4.2.3), and container names may have underscores.
    host = host.strip().lower().removesuffix(":")
    if not host_is_trusted(host.replace("_", "-")):
        return None
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.partition(":")[0].rstrip(".")
    try:
        name.encode("idna")  # labels may be empty, or longer than DNS allows
    except UnicodeError:
        return None
    return name or None


_FORWARDING = frozenset(
    {
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-original-forwarded-for",
        "x-envoy-external-address",
        "client-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "fastly-client-ip",
        "fly-client-ip",
        "x-proxyuser-ip",
        "x-original-host",
        "x-azure-clientip",
        "tailscale-user-login",
        "ngrok-auth-user-id",
    }
)
_FORWARDING_PREFIX = "x-forwarded"
_NO_ADMIN = "This route is for operators: it needs an admin key (`greenroom keys add NAME --admin`)."
_OWN_SITE = ("none", "same-origin")
"""Values of Sec-Fetch-Site of requests that no other site's page has caused."""


def find_loopback_problem(headers: Headers, address: str | None) -> Problem | None:
    """Return the reason to refuse a request of an operator; None if a program of this machine sent it.

    The peer's address alone does not show that: a proxy or a tunnel on this machine has a loopback address
    too. It is recognized by the headers that it adds, or by the host name that it leaves. Web pages are
    refused, even those that may use the models: they run on this machine, but others write them. The
    server's own pages are not.

    Args:
        address: Address of the peer; None if unknown.
    """
    if address != UNIX_CLIENT and not is_loopback(address):
        return _refusal(f"not from {address or 'an unknown address'}")
    names = (name.lower() for name, _ in headers)
    forwarding = next(
        (name for name in names if name in _FORWARDING or name.startswith(_FORWARDING_PREFIX)), None
    )
    if forwarding is not None:
        return _refusal(f"not through a proxy, which sent the header '{forwarding[:100]}'")
    host = headers.get("Host", "")
    if not _is_local_name(host):
        return _refusal(f"under a name such as localhost, not '{host[:200]}'")
    if not _is_own(headers, host) or headers.get("Sec-Fetch-Site", "none").strip().lower() not in _OWN_SITE:
        return _refusal("not from web pages")
    return None


def _is_own(headers: Headers, host: str) -> bool:
    """Return whether no page sent the request, or one that this server itself serves under that name."""
    origin = headers.get("Origin", "").strip().lower()
    own = host.strip().lower()
    return "Origin" not in headers or origin in (f"http://{own}", f"https://{own}")


async def require_loopback() -> None:
    """Refuse the current request unless an operator's key came with it.

    While no request needs a key, a program of this machine must have sent it. Raises ProblemError: 403.
    """
    state = request.scope["state"]
    if (ring := state.get("ring")) is not None and ring.is_locked:
        caller = state["caller"]
        if not (caller.admin or caller.metrics):  # the door lets a key for metrics nowhere else
            raise ProblemError(Problem(403, "admin_key_required", _NO_ADMIN))
        return
    if request.http_version == "1.0":  # nginx's default towards a server, where it adds no header
        raise ProblemError(_refusal("not by HTTP/1.0"))
    if (problem := find_loopback_problem(request.headers, request.remote_addr)) is not None:
        raise ProblemError(problem)


def loopback_blueprint(name: str) -> Blueprint:
    """Return a blueprint whose routes all answer only to programs of this machine."""
    routes = Blueprint(name, __name__)
    routes.before_request(require_loopback)
    return routes


def _refusal(how: str) -> Problem:
    detail = f"This route takes requests from programs of the server's own machine only, {how}."
    return Problem(403, "loopback_only", detail)


def is_loopback(address: str | None) -> bool:
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _is_local_name(host: str) -> bool:
    name = host_name(host)
    return name is not None and (name == "localhost" or name.endswith(".localhost") or is_loopback(name))


IPV6_NETWORK = 64
"""Prefix length of an IPv6 network, which usually belongs to one client (RFC 4291, section 2.5.4)."""


UNIX_CLIENT = "unix"  # Address of the clients of a Unix socket, which have none of their own


def client_name(headers: Headers, address: str | None, program: int | None = None) -> str:
    """Return a name for the client, for fairness between clients: `address`, `address#key` or
    `address#key@program`.

    Addresses share the server fairly, and the keys and programs of an address share what it has. All clients
    behind a proxy have the same address, while keys are unchecked and could differ in every request. Only a
    hash of the key is kept.

    Args:
        headers: Headers of the request, with a key in OpenAI's form (`Authorization: Bearer …`) or
            Anthropic's (`x-api-key`).
        program: Number of the program of this machine that sent it, if known.
    """
    keys = presented_keys(headers)
    key = blake2b(keys[0].encode(), digest_size=8).hexdigest() if keys else ""
    own = key if program is None else f"{key}@{program}"
    return f"{network_of(address or '')}#{own}".removesuffix("#")


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
