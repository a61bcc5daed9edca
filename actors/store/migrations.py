"""The database's migrations. A released migration is never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from greenroom.actors.store.database_file import UnusableDatabase, import_sqlite_utils

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations


SET = "greenroom"


def load_migrations() -> Migrations:
    migrations: Migrations = import_sqlite_utils().Migrations(SET)
    for name, step in _STEPS.items():
        migrations(name=name)(step)
    return migrations


def check_version(names: Iterable[str]) -> None:
    """Reject a database with unknown migrations. Raises UnusableDatabase: A newer version has written the
    database.
    """
    for name in names:
        if name not in _STEPS:
            raise UnusableDatabase(
                f"a newer version of Greenroom has written it (it has '{name}'): "
                "start that version, or name another database"
            )


def create_tables(database: Database) -> None:
    """Create the first tables. Long columns come last, so that SQLite reads the others without them."""
    for statement in _TABLES.split(";"):
        database.execute(statement)


def find_items_by_id(database: Database) -> None:
    """Index items by id, since a request may refer to any of them."""
    items = database.table("greenroom_items")
    items.drop_index("greenroom_items_id")
    items.create_index(["id", "conversation"], "greenroom_items_id")


def keep_system_prompts(database: Database) -> None:
    """Create the table of the operator's system prompts that conversations began with."""
    database.execute(
        "create table greenroom_system_prompts ("
        "response integer unique references greenroom_responses (number) on delete cascade,"
        " conversation integer unique references greenroom_conversations (number) on delete cascade,"
        " text text not null)"
    )


def create_capabilities(database: Database) -> None:
    """Create the table of what probes have found out about models."""
    database.execute(
        "create table greenroom_capabilities (model_id text primary key, model_type text not null,"
        " model_family text not null, tool_parser_id text, thinking_parser_id text,"
        " supports_native_tools integer, supports_thinking integer, supports_toggle integer,"
        " tool_format text, practical_max_tokens integer, supports_multi_image integer,"
        " supports_video integer, embedding_dimensions integer, max_sequence_length integer,"
        " is_normalized integer, supports_tts integer, supports_stt integer, probed_at real not null,"
        " probe_version integer not null, files text not null) without rowid"
    )


def create_working_space(database: Database) -> None:
    """Create the table of the working space that was measured at the models' last loads."""
    columns = {"model_id": str, "nbytes": int, "stamp": str}
    database.table("greenroom_working_space").create(columns, pk="model_id", not_null=("nbytes", "stamp"))


def create_audit(database: Database) -> None:
    """Create the tables of the audit, and of its sums by day and key."""
    database.execute(
        "create table greenroom_audit (number integer primary key autoincrement,"
        " request_id text not null unique, time real not null, owner text not null, protocol text not null,"
        " route text not null, model text not null, status integer, ending text not null,"
        " seconds real not null, queue real not null, prefill real not null, decode real not null,"
        " prompt_tokens integer, cached_tokens integer, generated_tokens integer, error text not null,"
        " background integer not null, backend text not null, body text not null, answer text not null)"
    )
    audit = database.table("greenroom_audit")
    audit.create_index(["time"], "greenroom_audit_time")
    audit.create_index(["owner", "number"], "greenroom_audit_owner")
    database.execute(
        "create table greenroom_usage (day text not null, owner text not null, requests integer not null,"
        " refused integer not null, failed integer not null, prompt_tokens integer not null,"
        " cached_tokens integer not null, generated_tokens integer not null, seconds real not null,"
        " primary key (day, owner)) without rowid"
    )


def create_keys(database: Database) -> None:
    """Create the table of API keys, of which only digests are kept."""
    database.execute(
        "create table greenroom_keys (id text primary key, name text not null, digest blob not null unique,"
        " created real not null, expires real, revoked real, is_off integer not null default 0,"
        " admin integer not null, priority integer not null, requests_per_minute integer,"
        " tokens_per_minute integer, models text not null, tools text not null) without rowid"
    )


def find_conversations_by_owner(database: Database) -> None:
    conversations = database.table("greenroom_conversations")
    conversations.create_index(["owner", "number"], "greenroom_conversations_owner")


def share_storage(database: Database) -> None:
    """Count the bytes of each owner by triggers, and index the audit's rows of strangers."""
    database.execute(
        "create table greenroom_owners (owner text primary key, nbytes integer not null) without rowid"
    )
    for table, (owner, size) in _OWNED.items():
        rows = f"select {owner.format('row')} as owner, {size.format('row')} as size from {table} row"
        sums = f"select owner, sum(size) from ({rows}) where true group by owner"
        database.execute(_COUNTED.format(sums))
        for event, row, sign in (("insert", "new", ""), ("delete", "old", "-")):
            change = _COUNTED.format(f"values ({owner.format(row)}, {sign}({size.format(row)}))")
            database.execute(f"create trigger {table}_{event} after {event} on {table} begin {change}; end")
    database.execute(
        "create index greenroom_audit_strangers on greenroom_audit (number)"
        " where ending in ('refused', 'cancelled') and owner in ('', 'strangers') and model = ''"
    )


def adding(column: str, table: str = "greenroom_keys") -> Callable[[Database], None]:
    """Return the migration that adds a column."""

    def add(database: Database) -> None:
        database.execute(f"alter table {table} add column {column}")

    return add


def leave_out(database: Database) -> None:
    """Create nothing: a later migration drops what this one created."""


def drop_copies(database: Database) -> None:
    """Drop the copies of models that Ollama's protocol made; profiles of the settings replace them."""
    database.execute("drop table if exists greenroom_copies")


def drop_servers(database: Database) -> None:
    """Drop the servers that shared a database, and their locks of conversations; one server has it now."""
    for name in ("servers", "claims"):
        database.execute(f"drop table if exists greenroom_{name}")


def count_metadata(database: Database) -> None:
    """Count metadata, which may change, in the bytes of each owner."""
    for table in ("conversations", "completions"):
        size = "length(cast({}.metadata as blob))"
        sums = f"select owner, sum({size.format('row')}) from greenroom_{table} row where true group by owner"
        database.execute(_COUNTED.format(sums))
        for event, row, change in (
            ("insert", "new", size.format("new")),
            ("delete", "old", f"-{size.format('old')}"),
            ("update of metadata", "new", f"{size.format('new')} - {size.format('old')}"),
        ):
            name = f"greenroom_{table}_metadata_{event.partition(' ')[0]}"
            counted = _COUNTED.format(f"values ({row}.owner, {change})")
            database.execute(f"create trigger {name} after {event} on greenroom_{table} begin {counted}; end")


_STEPS: Mapping[str, Callable[[Database], None]] = {
    "create_tables": create_tables,
    "find_items_by_id": find_items_by_id,
    "claim_conversations": leave_out,
    "keep_system_prompts": keep_system_prompts,
    "create_capabilities": create_capabilities,
    "create_working_space": create_working_space,
    "create_copies": leave_out,
    "create_audit": create_audit,
    "create_keys": create_keys,
    "find_conversations_by_owner": find_conversations_by_owner,
    "share_storage": share_storage,
    "add_metrics_keys": adding("metrics integer not null default 0"),
    "add_downloads": adding("downloads integer not null default 0"),
    "limit_concurrent_requests": adding("concurrent integer"),
    "drop_copies": drop_copies,
    "drop_servers": drop_servers,
    "count_metadata": count_metadata,
    "add_key_servers": adding("mcp text not null default '[]'"),
    "add_local_keys": adding("local_only integer not null default 0"),
    "tell_choices": adding("chosen text not null default ''", "greenroom_audit"),
}
"""Migrations in order, by the names that databases hold, which never change."""

_COUNTED = (
    "insert into greenroom_owners {} on conflict (owner) do update set nbytes = nbytes + excluded.nbytes"
)
_OWNED = {
    "greenroom_conversations": ("{0}.owner", "512"),
    "greenroom_responses": (
        "{0}.owner",
        "512 + length(cast({0}.raw || {0}.body || coalesce({0}.events, '') as blob))",
    ),
    "greenroom_completions": ("{0}.owner", "512 + length(cast({0}.body || {0}.messages as blob))"),
    "greenroom_items": (
        "coalesce((select owner from greenroom_conversations where number = {0}.conversation),"
        " (select owner from greenroom_responses where number = {0}.response), '')",
        "256 + length(cast({0}.body as blob))",
    ),
}
"""Owner and size in bytes of a row, by table, as expressions of columns that never change."""

_TABLES = """
create table greenroom_secrets (
    name text primary key,
    value blob not null
);
create table greenroom_conversations (
    number integer primary key autoincrement,
    id text not null unique,
    owner text not null,
    created real not null,
    used real not null,
    metadata text not null
);
create index greenroom_conversations_used on greenroom_conversations (used);
create table greenroom_responses (
    number integer primary key autoincrement,
    id text not null unique,
    owner text not null,
    parent text,
    conversation text,
    boot text,
    status text not null,
    used real not null,
    last_item integer,
    length integer not null,
    model text not null,
    created real not null,
    completed real,
    background integer not null,
    raw text not null,
    body text not null,
    events text
);
create index greenroom_responses_parent on greenroom_responses (parent) where parent is not null;
create index greenroom_responses_conversation on greenroom_responses (conversation)
    where conversation is not null;
create index greenroom_responses_boot on greenroom_responses (boot) where boot is not null;
create index greenroom_responses_used on greenroom_responses (used);
create table greenroom_items (
    number integer primary key autoincrement,
    id text not null,
    response integer references greenroom_responses (number),
    conversation integer references greenroom_conversations (number),
    output integer not null,
    length integer not null,
    body text not null
);
create index greenroom_items_response on greenroom_items (response, number) where response is not null;
create index greenroom_items_conversation on greenroom_items (conversation, number)
    where conversation is not null;
create index greenroom_items_id on greenroom_items (conversation, id) where conversation is not null;
create table greenroom_completions (
    number integer primary key autoincrement,
    id text not null unique,
    owner text not null,
    created real not null,
    used real not null,
    length integer not null,
    model text not null,
    metadata text not null,
    body text not null,
    messages text not null
);
create index greenroom_completions_owner on greenroom_completions (owner, number);
create index greenroom_completions_used on greenroom_completions (used)
"""
