"""Servers of a tiny model of any type, and raw requests to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import RawResponse, Served, connected, serving
from greenroom.tests.support.spoiled.spoiled_kinds import MAKERS, KindRequest

ANSWERED_WITHIN = 300.0
"""Time limit of a whole answer on a busy machine, in seconds."""


@asynccontextmanager
async def asking(kind: str, folder: Path) -> AsyncIterator[Served]:
    """Serve a tiny model made by `MAKERS[kind]`.

    Args:
        folder: Parent folder of the model.
    """
    (folder / kind).mkdir()
    MAKERS[kind](folder / kind)
    async with serving(Settings(models=(str(folder / kind),))) as served:
        yield served


async def answer(served: Served, request: KindRequest) -> RawResponse:
    """Send a request on a new connection; return the whole response."""
    async with connected(served.server, seconds=ANSWERED_WITHIN) as client:
        await client.request("POST", request.path, request.body, content_type=request.content_type)
        return await client.receive_response()
