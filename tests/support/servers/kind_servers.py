"""Servers of a tiny model of any kind, and requests to them as bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, serving
from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS, KindRequest

ANSWERED_WITHIN = 120.0
"""Seconds, for a whole answer on a busy machine."""


@asynccontextmanager
async def asking(kind: str, folder: Path) -> AsyncIterator[Served]:
    """Serve a tiny model of a kind of `MAKERS`, by its name.

    Args:
        folder: In which the model is made.
    """
    (folder / kind).mkdir()
    MAKERS[kind](folder / kind)
    async with serving(Settings(models=(str(folder / kind),))) as served:
        yield served


async def answer(served: Served, request: KindRequest) -> RawResponse:
    """Send a request on a connection of its own, and wait for all of its answer."""
    async with connected(served.server, seconds=ANSWERED_WITHIN) as client:
        await client.request("POST", request.path, request.body, content_type=request.content_type)
        return await client.receive_response()
