"""Rules of the operator for the URLs in requests: they are checked before the server connects to a host."""

from __future__ import annotations

import re

import attrs
import httpx2

from greenroom.schemas.problems import Problem, ProblemError, invalid, not_fetched
from greenroom.schemas.settings.images import Fetching

PORTS = (80, 443, 8080, 8443)
"""Usual ports of web servers; on another port, a different service could misinterpret the request."""

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class FetchRules:
    """The operator's rules for fetching URLs.

    Args:
        fetching: Allowed schemes: `https` allows only https, `http` allows both.
        hosts: Trusted host names and addresses in lower case; they may be private and use any port.
    """

    fetching: Fetching
    hosts: frozenset[str]

    def check(self, url: str, field: str | None) -> httpx2.URL:
        """Return the parsed URL if the rules allow it; the host's address is checked later.

        Args:
            field: Name of the field in the request, for errors.

        Raises:
            ProblemError: 400 that names the field.
        """
        if self.fetching == "off":
            raise not_fetched(field)
        parsed = self._parse(url, field)
        if parsed.scheme not in _DEFAULT_PORTS:
            raise not_fetchable(field, "is no address with https or http")
        if parsed.scheme == "http" and self.fetching != "http":
            raise not_fetchable(field, 'is not fetched without https (`[images] fetch = "http"` allows it)')
        if parsed.userinfo:
            raise not_fetchable(field, "has a user or a password in it")
        port = parsed.port or _DEFAULT_PORTS[parsed.scheme]
        if port not in PORTS and not self.trusts(parsed.host):
            known = ", ".join(map(str, PORTS))
            raise not_fetchable(field, f"has the port {port}, but files are fetched from {known} only")
        return parsed

    def trusts(self, host: str) -> bool:
        return host.lower().rstrip(".") in self.hosts

    def _parse(self, url: str, field: str | None) -> httpx2.URL:
        if _NEVER_IN_A_URL.search(url):
            raise not_fetchable(field, "has white space, control characters or backslashes in it")
        try:
            parsed = httpx2.URL(url)
            # Reading `host` decodes an international name, which may fail.
            has_host = bool(parsed.host)
        except (httpx2.InvalidURL, ValueError, TypeError):
            raise not_fetchable(field, "is no URL") from None
        if not has_host and parsed.scheme in _DEFAULT_PORTS:
            raise not_fetchable(field, "names no host")
        return parsed


def not_fetchable(field: str | None, why: str) -> ProblemError:
    """Return the error, a 400, for a file that cannot or must not be fetched.

    Args:
        why: Reason, which completes a sentence that starts with the field's name.
    """
    return invalid(f"`{field or 'url'}` {why}.", field, "file_not_fetched")


def too_many_fetches() -> ProblemError:
    """Return the error for a file that waited too long for a free slot."""
    detail = "This server fetches as many files as it can at once. Try again."
    return ProblemError(Problem(503, "too_many_fetches", detail, retry_after=1))
