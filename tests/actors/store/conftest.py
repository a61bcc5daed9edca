"""Fixtures with a database and without a store actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from greenroom.actors.store.connection import Connection
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.tables import Tables


@pytest.fixture
def connection() -> Iterator[Connection]:
    with closing(Connection(MEMORY)) as opened:
        yield opened


@pytest.fixture
def tables(connection: Connection) -> Tables:
    return Tables(connection, "boot")
