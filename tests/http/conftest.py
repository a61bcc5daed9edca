"""Fixtures shared by several tests of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from greenroom.schemas.settings.setting_groups import MEGABYTE
from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.servers.http_servers import Served, serving
from greenroom.tests.support.servers.shared_servers import Shared, sharing


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Servers for all tests of a file: none may see what others have asked."""
    with sharing() as served:
        yield served


@pytest.fixture
async def server_without_model() -> AsyncIterator[Served]:
    """Run a server without models, for requests that need none."""
    settings = Settings(
        allowed_hosts=("greenroom.example",),
        allowed_origins=("https://chat.example",),
        max_body_bytes=2 * MEGABYTE,
        shutdown_timeout=60.0,
    )
    async with serving(settings) as served:
        yield served
