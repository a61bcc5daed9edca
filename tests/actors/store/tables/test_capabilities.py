"""Probed capabilities in the database: every field comes back, to the store and to commands."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import attrs
import pytest
import structlog

from greenroom.actors.store.connection import Connection
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.read_only import read_capabilities
from greenroom.actors.store.tables import Tables
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.tests.support.actors.stored_records import PROBED

FULL = ProbedCapabilities(
    "a",
    "vision",
    "gemma",
    "gemma",
    "gemma4",
    supports_native_tools=False,
    supports_thinking=True,
    supports_toggle=True,
    tool_format="injection",
    practical_max_tokens=1,
    supports_multi_image=True,
    supports_video=True,
    embedding_dimensions=2,
    max_sequence_length=3,
    is_normalized=False,
    supports_tts=False,
    supports_stt=True,
    probed_at=1.5,
    probe_version=7,
    files="ab",
)


def write(path: Path, *records: ProbedCapabilities) -> None:
    with closing(Connection(str(path))) as connection:
        for record in records:
            Tables(connection, "boot").capabilities.save(record)


def test_every_field_comes_back_and_a_new_probe_replaces_the_last(tmp_path: Path) -> None:
    assert None not in attrs.astuple(FULL)
    newer = attrs.evolve(PROBED, tool_parser_id=None, supports_thinking=None)
    write(tmp_path / "db", PROBED, FULL, newer)
    assert read_capabilities(tmp_path / "db") == (FULL, newer)
    with closing(Connection(str(tmp_path / "db"))) as connection:
        assert Tables(connection, "boot").capabilities.list() == (FULL, newer)


def test_reading_creates_nothing_and_lives_with_anything(tmp_path: Path) -> None:
    assert read_capabilities(tmp_path / "none" / "db") == ()
    assert not list(tmp_path.iterdir())
    with closing(sqlite3.connect(tmp_path / "older")) as connection:
        connection.execute("create table greenroom_secrets (name)")
        assert read_capabilities(connection) == ()
    assert read_capabilities(tmp_path / "older") == ()
    (tmp_path / "text").write_text("Dear diary, " * 100)
    with structlog.testing.capture_logs() as logs:
        assert read_capabilities(tmp_path / "text") == ()
    assert [line["event"] for line in logs] == ["capabilities unreadable"]


@pytest.mark.parametrize("column", ["model_type", "model_family"])
def test_what_only_a_later_version_knows_is_left_out(column: str) -> None:
    with closing(Connection(MEMORY)) as connection:
        tables = Tables(connection, "boot")
        tables.capabilities.save(PROBED)
        tables.capabilities.save(FULL)
        with connection.transaction():
            connection.write(f"update greenroom_capabilities set {column} = 'smell' where model_id = 'a'")
        assert tables.capabilities.list() == (PROBED,)
