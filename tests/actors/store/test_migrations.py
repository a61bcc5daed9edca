"""Databases of earlier versions stay usable, since the names of migrations never change."""

from __future__ import annotations

from contextlib import closing

import pytest

from greenroom.actors.store.database.database_file import UnusableDatabase
from greenroom.actors.store.database.migrations import SET, check_version, load_migrations
from greenroom.actors.store.database.sqlite_library import import_sqlite_utils

WRITTEN = (
    "create_tables",
    "find_items_by_id",
    "claim_conversations",
    "keep_system_prompts",
    "create_capabilities",
    "create_working_space",
    "create_copies",
    "create_audit",
    "create_keys",
    "find_conversations_by_owner",
    "index_shares",
)
"""Names that databases hold already; new ones are appended."""


def test_migrations_keep_the_names_that_databases_hold() -> None:
    with closing(import_sqlite_utils().Database(memory=True)) as database:
        load_migrations().apply(database)
        rows = database["_sqlite_migrations"].rows_where("migration_set = ?", [SET])
        applied = [row["name"] for row in rows]
    assert sorted(applied) == sorted(WRITTEN)
    check_version(WRITTEN)


def test_a_migration_of_a_later_version_is_refused_by_its_name() -> None:
    with pytest.raises(UnusableDatabase, match=r"a newer version of Greenroom .* 'split_items'"):
        check_version([*WRITTEN, "split_items"])
