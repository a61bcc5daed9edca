"""Admission of requests by API key, from their request lines and headers alone."""

from __future__ import annotations

import time

import attrs
import trio
from werkzeug.datastructures import Headers

from greenroom.http.guard.client_name import network_of, presented_keys
from greenroom.http.guard.keys.key_ring import KeyRing
from greenroom.http.guard.keys.rate_limits import RateLimits
from greenroom.http.guard.keys.wrong_keys import WrongKeys
from greenroom.http.guard.loopback_guard import find_loopback_problem
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.caller import ANYBODY, STRANGER, Caller

EXEMPT_PATHS = frozenset({"/", "/health", "/livez", "/readyz", "/api/hello", "/api/version"})
"""Paths that answer GET and HEAD without a key: probes, some of which clients send before they send keys."""
METRICS_PATH = "/metrics"
"""Path that keys for metrics open."""
PAGES_PREFIX = "/pages/"
"""Beginning of the paths of the pages' files, which are the same for everybody."""
SLOW_SECONDS = 1.0
"""Seconds by which the answer to a wrong key is late, after too many of them."""
MOST_SLOWED = 16
"""Answers that are late at once; more are refused without a delay."""
_NO_KEY = (
    "This server needs an API key: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`. "
    "`greenroom keys add NAME` makes one."
)


@attrs.frozen
class Head:
    """The request line, the headers and the peer's address of a request, by which it is admitted."""

    method: str
    path: str
    headers: Headers
    address: str | None
    http_version: str = "1.1"


class Door:
    """Admits requests by API key: identifies their callers, and refuses strangers while keys are needed.

    Args:
        ring: Valid keys.
        open_loopback: True if programs of this machine need no key, except for operators' routes.
    """

    def __init__(self, ring: KeyRing, *, open_loopback: bool = False) -> None:
        self.ring = ring
        self.limits = RateLimits()
        self._open_loopback = open_loopback
        self._wrong = WrongKeys()
        self._slowed = 0

    async def admit(self, head: Head) -> Caller:
        """Return the caller of a request.

        Raises:
            ProblemError: 401 for a request without a valid key, 403 for a path that a key for metrics does
                not open, 429 after many wrong keys.
        """
        if not self.ring.is_locked:
            return ANYBODY
        given = presented_keys(head.headers)
        now = time.time()
        for secret in given:
            if (caller := self.ring.find(secret, now)) is not None:
                if caller.metrics and head.path != METRICS_PATH and not _is_exempt(head):
                    raise ProblemError(Problem(403, "metrics_key", "This API key opens /metrics only."))
                return caller
        is_local = head.http_version != "1.0" and find_loopback_problem(head.headers, head.address) is None
        if is_local and any(map(self.ring.is_session_key, given)):
            return STRANGER if self.ring.has_admin_key else ANYBODY
        if (is_local and self._open_loopback) or _is_exempt(head):
            return STRANGER
        if not given:
            raise ProblemError(Problem(401, "invalid_api_key", _NO_KEY))
        wait = self._wrong.record(network_of(head.address or ""), trio.current_time())
        if wait is not None:
            if self._slowed < MOST_SLOWED:  # Slowed answers hold connections that others need.
                self._slowed += 1
                try:
                    await trio.sleep(SLOW_SECONDS)
                finally:
                    self._slowed -= 1
            detail = "Too many wrong API keys came from this address. Wait a minute."
            raise ProblemError(Problem(429, "too_many_wrong_keys", detail, retry_after=wait))
        detail = "This API key opens nothing here: it is wrong, was revoked, or has expired."
        raise ProblemError(Problem(401, "invalid_api_key", detail))


def _is_exempt(head: Head) -> bool:
    is_public = head.path in EXEMPT_PATHS or head.path.startswith(PAGES_PREFIX)
    return is_public and head.method in ("GET", "HEAD")
