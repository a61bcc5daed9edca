"""Databases of earlier versions stay usable, since the names of migrations never change."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import attrs
import pytest

from greenroom.actors.store.connection import Connection, check_database
from greenroom.actors.store.database_file import MEMORY, UnusableDatabase, import_sqlite_utils
from greenroom.actors.store.migrations import (
    SET,
    check_version,
    count_metadata,
    load_migrations,
    share_storage,
)
from greenroom.actors.store.read_only import read_working_space
from greenroom.actors.store.retention import Retention
from greenroom.actors.store.tables import Tables
from greenroom.schemas.models.capabilities import WorkingSpace
from greenroom.tests.support.actors.stored_records import PROBED, completion, conversation, item, response

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
    "limit_concurrent_requests",
    "drop_copies",
    "drop_servers",
    "count_metadata",
    "add_key_servers",
    "add_local_keys",
    "tell_choices",
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


def test_each_owners_bytes_are_counted_as_rows_come_and_go(connection: Connection, tables: Tables) -> None:
    unfinished = response("a", owner="k", conversation="c", raw="\u20ac", status="in_progress")
    changes: list[Callable[[Tables], object]] = [
        lambda tables: tables.conversations.create(
            conversation("c", owner="k"), (item("first"), item("second"))
        ),
        lambda tables: tables.conversations.add_items("c", "k", (item("third", "\u00e9"),)),
        lambda tables: tables.responses.begin(unfinished),
        lambda tables: tables.responses.commit(
            attrs.evolve(unfinished, status="completed", events="[]"), begun=True
        ),
        lambda tables: tables.responses.commit(response("b", owner="other")),
        lambda tables: tables.completions.save(completion("x", owner="k", body="{}")),
        lambda tables: tables.conversations.update("c", "k", {"title": "long" * 100}),
        lambda tables: tables.completions.update("x", "k", {"title": "long" * 100}),
        lambda tables: tables.conversations.remove_item("c", "k", "second"),
        lambda tables: tables.conversations.remove_item("c", "k", "a-in"),
    ]
    for change in changes:
        change(tables)
    before = counted(connection)
    assert set(before) == {"k", "other"}
    # A later migration of the same rows counts the same.
    for name in ("conversations", "completions"):
        for event in ("insert", "delete", "update"):
            connection.write(f"drop trigger greenroom_{name}_metadata_{event}")
    for name in ("conversations", "responses", "completions", "items"):
        for event in ("insert", "delete"):
            connection.write(f"drop trigger greenroom_{name}_{event}")
    connection.write("drop table greenroom_owners")
    connection.write("drop index greenroom_audit_strangers")
    share_storage(connection._database)
    assert before["k"] - counted(connection)["k"] == 2 * len('{"title": ""}') + 2 * len("long" * 100)
    count_metadata(connection._database)
    assert counted(connection) == before
    tables.responses.delete("a", "k")
    tables.responses.delete_conversation("c", "k")
    assert counted(connection)["k"] == 512 + len("{}[]") + len('{"title": ""}') + len("long" * 100)
    for _ in Retention(connection, tables.responses, tables.conversations, time.time() + 1.0).steps():
        pass
    assert set(counted(connection).values()) == {0}


HOSTS = """
create table orders (id integer primary key, responses text);
create index orders_responses on orders (responses);
create trigger orders_ai after insert on orders begin update orders set responses = new.id; end;
insert into orders (id) values (7);
pragma user_version = 12;
"""
"""Objects of the program around, in the same file."""
OF_HOST = """
select name, sql from sqlite_master
where name not like 'greenroom~_%' escape '~' and name not like 'sqlite~_%' escape '~'
and tbl_name != '_sqlite_migrations' order by name
"""


@pytest.mark.parametrize("count", range(1, len(WRITTEN) + 1), ids=lambda count: WRITTEN[count - 1])
def test_a_database_of_each_earlier_schema_opens_and_ends_with_the_newest(tmp_path: Path, count: int) -> None:
    path = tmp_path / "db"
    following = WRITTEN[count] if count < len(WRITTEN) else None
    with closing(import_sqlite_utils().Database(path)) as database:
        database.conn.executescript(HOSTS)
        own = database.execute(OF_HOST).fetchall()
        assert len(own) == 3
        load_migrations().apply(database, stop_before=following)
        if {"create_copies", "drop_copies"} & {*WRITTEN[:count]} == {"create_copies"}:
            database["greenroom_copies"].insert({"name": "mine", "profile": "{}"}, pk="name")
        if "drop_servers" not in WRITTEN[:count]:
            database["greenroom_servers"].insert({"boot": "b", "started": 1.5}, pk="boot")
        owned = {"owner": "", "created": 1.5, "used": time.time()}
        number = database["greenroom_conversations"].insert({"id": "c", "metadata": "{}", **owned}).last_pk
        kept = {"model": "m", "status": "completed", "background": 0, "raw": "raw", "body": "{}", "length": 1}
        kept |= {"conversation": "c", "last_item": 1}
        turn = database["greenroom_responses"].insert({"id": "r", **kept, **owned}).last_pk
        part = {"output": 1, "length": 12, "body": '{"id": "i"}'}
        database["greenroom_items"].insert({"id": "i", "response": turn, "conversation": number, **part})
    with closing(Connection(str(path))) as connection, closing(Connection(MEMORY)) as new:
        tables = Tables(connection, "boot")
        assert connection._database.execute(OF_HOST).fetchall() == own
        assert connection._database.execute("select id, responses from orders").fetchall() == [(7, "7")]
        assert connection._database.execute("pragma user_version").fetchall() == [(12,)]
        found = tables.responses.find("r", "")
        assert [item.id for item in found.output] == ["i"]
        turns = tables.histories.before("", conversation="c")
        assert [item.id for turn in turns.turns for item in turn.items] == ["i"]
        tables.responses.commit(response("s", conversation="c"), False)
        tables.capabilities.save(PROBED)
        schema = "select type, name, sql from sqlite_master where name like 'greenroom%' order by name"
        assert list(map(tuple, connection.read(schema))) == list(map(tuple, new.read(schema)))
    # The check at a server's start takes it as well.
    check_database(str(path))


def test_tables_that_were_created_without_row_numbers_are_written_as_well(
    connection: Connection, tables: Tables
) -> None:
    for name, columns in {
        "working_space": "model_id text primary key, nbytes integer not null, stamp text not null",
    }.items():
        connection.write(f"drop table greenroom_{name}")
        connection.write(f"create table greenroom_{name} ({columns}) without rowid")
    for nbytes in (1, 2):
        tables.working_space.save(WorkingSpace("m", nbytes, "x"))
    database = connection._database.conn
    assert read_working_space(database) == (WorkingSpace("m", 2, "x"),)
