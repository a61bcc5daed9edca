"""Serve `/metrics` for Prometheus: rendered on a worker thread, and shared for a second."""

from __future__ import annotations

import math

import trio
from quart import Blueprint, Response

from greenroom.actors.actor_refs import ActorRefs
from greenroom.actors.core.ask_actor import ask_actor
from greenroom.http.answering.protocols.route_description import FOR_OPERATORS, TEXT, described
from greenroom.http.guard.loopback_guard import loopback_blueprint
from greenroom.http.operations.http_requests import HttpRequests
from greenroom.http.operations.metric_families import CONTENT_TYPE, AuditCounts, metrics_text
from greenroom.schemas.protocols.download_protocol import ListPulls, Pulls
from greenroom.schemas.protocols.pool_protocol import DescribePool, PoolStatus

SHARED_SECONDS = 1.0
"""Seconds for which all scrapers get the same text."""


class MetricsPage:
    """The text of `/metrics`, rendered at most once in `SHARED_SECONDS`, however many ask for it."""

    def __init__(self, refs: ActorRefs, requests: HttpRequests) -> None:
        self._refs = refs
        self._requests = requests
        self._rendering = trio.Lock()
        self._text = b""
        self._rendered = -math.inf

    async def text(self) -> bytes:
        """Return the text.

        Raises:
            ProblemError: The server ends.
        """
        async with self._rendering:
            if trio.current_time() - self._rendered >= SHARED_SECONDS:
                status = await ask_actor(self._refs.pool, DescribePool(), PoolStatus)
                pulls = await ask_actor(self._refs.downloads, ListPulls(), Pulls)
                audit = self._refs.audit
                counts = None if audit is None else AuditCounts(audit.waiting, audit.book.lost)
                self._text = await trio.to_thread.run_sync(
                    metrics_text, status, pulls, self._requests.counts(), counts
                )
                self._rendered = trio.current_time()
            return self._text


def metrics_route(refs: ActorRefs, requests: HttpRequests) -> Blueprint:
    """Return the blueprint of the route that serves metrics."""
    routes = loopback_blueprint("metrics")
    page = MetricsPage(refs, requests)

    @routes.get("/metrics")
    @described("Show metrics for Prometheus", media=(TEXT,), problems=FOR_OPERATORS)
    async def metrics() -> Response:
        return Response(await page.text(), content_type=CONTENT_TYPE)

    return routes
