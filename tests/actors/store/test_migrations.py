"""Databases of earlier versions stay usable, since the names of migrations never change."""

from __future__ import annotations

from contextlib import closing

import attrs
import pytest

from greenroom.actors.store.answers import Answers
from greenroom.actors.store.database.connection import Connection
from greenroom.actors.store.database.database_file import UnusableDatabase
from greenroom.actors.store.database.migrations import SET, check_version, load_migrations, share_storage
from greenroom.actors.store.database.sqlite_library import import_sqlite_utils
from greenroom.schemas.protocols.completion_store_protocol import SaveCompletion, UpdateCompletion
from greenroom.schemas.protocols.conversation_store_protocol import (
    AddItems,
    CreateConversation,
    DeleteConversation,
    DeleteItem,
    UpdateConversation,
)
from greenroom.schemas.protocols.store_protocol import BeginResponse, CommitResponse, DeleteResponse
from greenroom.tests.support.actors.stored_records import completion, conversation, item, response

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
    "share_storage",
    "add_metrics_keys",
    "add_downloads",
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


def counted(connection: Connection) -> dict[str, int]:
    return {row["owner"]: row["nbytes"] for row in connection.read("select * from greenroom_owners")}


def test_each_owners_bytes_are_counted_as_rows_come_and_go(connection: Connection, answers: Answers) -> None:
    unfinished = response("a", owner="k", conversation="c", raw="\u20ac", status="in_progress")
    for message in (
        CreateConversation(conversation("c", owner="k"), (item("first"), item("second"))),
        AddItems("c", "k", (item("third", "\u00e9"),)),
        BeginResponse(unfinished),
        CommitResponse(attrs.evolve(unfinished, status="completed", events="[]"), begun=True),
        CommitResponse(response("b", owner="other")),
        SaveCompletion(completion("x", owner="k", body="{}")),
        UpdateConversation("c", "k", {"title": "long" * 100}),
        UpdateCompletion("x", "k", {"title": "long" * 100}),
        DeleteItem("c", "k", "second"),
        DeleteItem("c", "k", "a-in"),
    ):
        answers.answer(message)
    before = counted(connection)
    assert set(before) == {"k", "other"}
    # A later migration of the same rows counts the same.
    for name in ("conversations", "responses", "completions", "items"):
        for event in ("insert", "delete"):
            connection.write(f"drop trigger greenroom_{name}_{event}")
    connection.write("drop table greenroom_owners")
    connection.write("drop index greenroom_audit_strangers")
    share_storage(connection._database)
    assert counted(connection) == before
    answers.answer(DeleteResponse("a", "k"))
    answers.answer(DeleteConversation("c", "k"))
    assert counted(connection)["k"] == 512 + len("{}[]")
    for _ in Answers(connection, "boot", retention_days=-1.0).retention().steps():
        pass
    assert set(counted(connection).values()) == {0}
