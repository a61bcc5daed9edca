"""Which URLs are fetched, before anything is looked up or connected to."""

from __future__ import annotations

import re

import attrs
import httpx

from greenroom.schemas.problems import Problem, ProblemError, invalid, not_fetched
from greenroom.schemas.settings.settings import Fetching

PORTS = (80, 443, 8080, 8443)
"""Where web servers listen; on other ports something else may understand what it was not meant to hear."""

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@attrs.frozen
class FetchRules:
    """What an operator allows.

    Args:
        fetching: `https` allows that alone, `http` both.
        hosts: Names and addresses that are fetched from wherever they are, on any port; in lower case.
    """

    fetching: Fetching
    hosts: frozenset[str]

    def check(self, url: str, field: str | None) -> httpx.URL:
        """Return a URL that may be fetched, if its host is where it may be.

        Args:
            field: What the client calls it.

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
        """Return whether the operator has named a host."""
        return host.lower().rstrip(".") in self.hosts

    def _parse(self, url: str, field: str | None) -> httpx.URL:
        if _NEVER_IN_A_URL.search(url):
            raise not_fetchable(field, "has white space, control characters or backslashes in it")
        try:
            parsed = httpx.URL(url)
            # An international host's name is only decoded, and may prove to be none, when it is read.
            has_host = bool(parsed.host)
        except (httpx.InvalidURL, ValueError, TypeError):
            raise not_fetchable(field, "is no URL") from None
        if not has_host and parsed.scheme in _DEFAULT_PORTS:
            raise not_fetchable(field, "names no host")
        return parsed


def not_fetchable(field: str | None, why: str) -> ProblemError:
    """Return the error for a file that cannot or must not be fetched: always a 400.

    Args:
        why: Goes on after the name of the field.
    """
    return invalid(f"`{field or 'url'}` {why}.", field, "file_not_fetched")


def too_many_fetches() -> ProblemError:
    """Return the error for a file whose turn did not come in time."""
    detail = "This server fetches as many files as it can at once. Try again."
    return ProblemError(Problem(503, "too_many_fetches", detail, retry_after=1))
