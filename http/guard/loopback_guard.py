"""Access control of routes for operators: programs of this machine only."""

from __future__ import annotations

import ipaddress

from quart import Blueprint, request
from werkzeug.datastructures import Headers

from greenroom.http.guard.client_name import UNIX_CLIENT
from greenroom.http.guard.host_guard import host_name
from greenroom.schemas.problems import Problem, ProblemError

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
    if address != UNIX_CLIENT and not _is_loopback(address):
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

    While no request needs a key, a program of this machine must have sent it. A blueprint whose routes are
    all for operators is `loopback_blueprint`. A single route among others awaits this before it reads the
    body.

    Raises:
        ProblemError: 403.
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


def _is_loopback(address: str | None) -> bool:
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _is_local_name(host: str) -> bool:
    name = host_name(host)
    return name is not None and (name == "localhost" or name.endswith(".localhost") or _is_loopback(name))
