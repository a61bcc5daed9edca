"""Counts of the responses to HTTP requests, by labels that no client chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from quart import Request, Response

OTHER = "other"
"""Label of what is not in the table of routes: unknown paths, and methods that no route has."""

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

Labels = tuple[str, str, str]
"""Template of a route, method, and class of a status such as `2xx`."""


class HttpRequests:
    """The number of responses since the start, for each route, method and class of status.

    Requests that never reach the routes, such as refused connections and broken heads, are not counted.
    """

    def __init__(self) -> None:
        self._counts: Counter[Labels] = Counter()

    def record(self, request: Request, response: Response) -> None:
        route = OTHER if request.url_rule is None else request.url_rule.rule
        method = request.method if request.method in _METHODS else OTHER
        self._counts[route, method, f"{response.status_code // 100}xx"] += 1

    def counts(self) -> Mapping[Labels, int]:
        """Return the counts so far, which further requests leave as they are."""
        return dict(self._counts)
