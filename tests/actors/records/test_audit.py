"""The audit's join of both halves of a request."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
import structlog.testing
import trio

from greenroom.actors.core.worker import HANG_TIMEOUT, Workers
from greenroom.actors.records.audit import MAX_ROWS, MAX_TEXT, REFUSED_SHARE, AuditBook, AuditWriter
from greenroom.actors.store.connection import PAGE, Capacity, Connection
from greenroom.actors.store.store import Store
from greenroom.actors.store.tables import AuditTable, ask_store
from greenroom.schemas.events.events import Timing, Usage
from greenroom.schemas.protocols.model_protocol import RequestEnded
from greenroom.schemas.settings.settings import Settings
from greenroom.schemas.stored import AuditFilter, AuditRow
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import wait_until
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

ENDED = RequestEnded("cancelled", None, Usage(prompt=7, generated=3, cached=2), Timing(0.5, 1.0, 2.0))


def test_a_row_waits_for_the_model_of_a_client_that_has_left() -> None:
    book = AuditBook(lambda: 5.0)
    book.begin("r", "openai", "/v1/chat/completions")
    book.hold("r", "m")
    book.end("r", None, owner="key", cancelled=True)
    assert not book.waiting
    book.release("r", ENDED)
    [row] = book.take(10)
    assert (row.ending, row.model, row.owner, row.queue, row.decode) == ("cancelled", "m", "key", 0.5, 2.0)
    assert (row.prompt_tokens, row.cached_tokens, row.generated_tokens) == (7, 2, 3)
    book.release("r", ENDED)  # a late report changes nothing
    assert not book.waiting


def test_a_call_belongs_to_the_key_of_its_request_and_is_none_itself(tmp_path: Path) -> None:
    book = AuditBook()
    book.begin("r", "openai", "/v1/chat/completions")
    book.admit("r", "key")
    book.add_call("r-2", "call_1", "files/read", 0.5, "")
    book.end("r", 200, owner="key")
    rows = book.take(10)
    assert [(each.route, each.owner) for each in rows] == [
        ("CALL files/read", "key"),
        ("/v1/chat/completions", "key"),
    ]
    with closing(Connection(str(tmp_path / "kept.db"))) as connection:
        table = AuditTable(connection, 30.0, 100, Capacity(connection))
        table.save(rows)
        assert [(each.owner, each.requests) for each in table.usage()] == [("key", 1)]


def test_prompts_of_one_request_are_one_row() -> None:
    book = AuditBook()
    book.begin("r", "openai", "/v1/completions")
    for backend, chosen in (("far", "far/m: comes first"), ("", ""), ("", "")):
        book.hold("r", "m")
        ended = RequestEnded("stop", None, Usage(prompt=2, generated=1))
        book.release("r", ended, backend=backend, chosen=chosen)
    book.end("r", 200)
    [row] = book.take(10)
    assert (row.ending, row.status, row.prompt_tokens, row.generated_tokens) == ("answered", 200, 6, 3)
    assert (row.backend, row.chosen) == ("far", "far/m: comes first")


def test_names_are_bounded_and_a_flood_of_refusals_displaces_no_other_row() -> None:
    book = AuditBook()
    for number in range(MAX_ROWS):
        book.refuse(str(number), "other", "/" + "x" * 100_000 + "\ud800", 431, "bad_request")
    assert (book.waiting, book.lost) == (MAX_ROWS // REFUSED_SHARE, MAX_ROWS - MAX_ROWS // REFUSED_SHARE)
    for number in range(MAX_ROWS):
        book.begin(f"r{number}", "openai", "\ud800")
        book.end(f"r{number}", 503, "model_crashed")
    assert book.waiting == MAX_ROWS
    rows = book.take(MAX_ROWS)
    assert len(rows[0].route) == MAX_TEXT
    assert (rows[-1].ending, rows[-1].route) == ("failed", "?")


DAY = 86_400.0


@asynccontextmanager
async def writing(database: sqlite3.Connection, book: AuditBook) -> AsyncIterator[tuple[AuditWriter, Store]]:
    """Run a writer with a store."""
    workers = Workers(HANG_TIMEOUT, None)
    store = Store(Settings(), workers, database)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        writer = AuditWriter(book, store.ref, 0.01)
        async with trio.open_nursery() as writers:
            writers.start_soon(writer.run)
            yield writer, store
            writers.cancel_scope.cancel("the test is over")
        await writer.finish(10.0)
        await store.stop(10.0)
    await workers.close(10.0)


def fill(book: AuditBook, count: int) -> None:
    """End so many requests."""
    for number in range(count):
        book.begin(f"req_{book.position}x{number}", "openai", "POST /v1/chat/completions")
        book.end(f"req_{book.position}x{number}", 200, owner="key")


def row(number: int, at: float, **changes: Any) -> AuditRow:
    made = AuditRow(f"req_{number}", at, "key", "openai", "POST /", "m", 200, "answered", 1.0)
    return attrs.evolve(made, **changes)


async def test_a_full_database_keeps_a_batch_and_says_so_once_and_takes_it_later() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        Connection(database)  # makes the tables
        pages = database.execute("pragma page_count").fetchone()[0]
        database.execute(f"pragma max_page_count = {pages + 2}")
        book = AuditBook()
        with structlog.testing.capture_logs() as lines:
            async with writing(database, book) as (writer, store):
                fill(book, 1_000)
                while not any(line["event"] == "audit not written" for line in lines):  # noqa: ASYNC110
                    await trio.sleep(0.01)
                fill(book, MAX_ROWS + 7)
                await trio.sleep(0.1)
                assert writer.waiting == 1_000 + MAX_ROWS
                assert book.lost == 7
                database.execute(f"pragma max_page_count = {pages + (64 << 20) // PAGE}")
                while writer.waiting:  # noqa: ASYNC110
                    await trio.sleep(0.01)
                page = await ask_store(store.ref, lambda tables: tables.audit.list(AuditFilter(limit=1)))
        assert page.rows[0][0] == 1_000 + MAX_ROWS
        events = [line["event"] for line in lines if line["event"].startswith("audit ")]
        assert events.count("audit not written") == 1
        assert "audit is written again" in events
        assert sum(line["rows"] for line in lines if line["event"] == "audit rows lost") == 7


async def test_what_stays_unwritten_at_the_end_is_told() -> None:
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        Connection(database)
        database.execute("pragma max_page_count = 1")
        book = AuditBook()
        with structlog.testing.capture_logs() as lines:
            async with writing(database, book):
                fill(book, 500)
        told = [line for line in lines if line["event"] == "audit rows lost"]
        assert [(line["rows"], line["reason"]) for line in told] == [(500, "storage_full")]


def test_a_repeated_batch_is_counted_once_and_old_and_too_many_rows_are_deleted(tmp_path: Path) -> None:
    connection = Connection(str(tmp_path / "kept.db"))
    table, now = AuditTable(connection, 30.0, 2_500, Capacity(connection)), time.time()
    rows = tuple(row(number, now - 31 * DAY if number < 1_500 else now) for number in range(4_500))
    for _ in range(2):
        table.save(rows)
    assert sum(entry.requests for entry in table.usage()) == 4_500
    assert sum(1 for _ in table.prune()) == 3
    found = table.list(AuditFilter(limit=3_000))
    assert (len(found.rows), found.has_more) == (2_500, False)
    assert found.rows[-1][1].request_id == "req_2000"
    assert sum(entry.requests for entry in table.usage()) == 4_500
    connection.close()


def test_rows_of_strangers_leave_first(tmp_path: Path) -> None:
    connection = Connection(str(tmp_path / "kept.db"))
    table, now = AuditTable(connection, 30.0, 100, Capacity(connection)), time.time()
    refused: dict[str, Any] = {"ending": "refused", "model": "", "owner": ""}
    kept = tuple(row(number, now, owner="key_1") for number in range(60))
    flood = tuple(row(number, now, status=401, **refused) for number in range(60, 1_300))
    late = tuple(row(number, now, **{**refused, "owner": "key_2"}) for number in range(1_300, 1_330))
    table.save((*kept, *flood, *late))
    assert sum(1 for _ in table.prune()) == 2
    found = [each for _, each in table.list(AuditFilter(limit=200)).rows]
    assert sorted(found, key=lambda each: int(each.request_id[4:])) == [*kept, *flood[-10:], *late]
    connection.close()


@pytest.mark.parametrize("name", ["since", "until", "owners", "model", "status", "ending"])
def test_each_filter_means_the_same_for_stored_and_for_followed_rows(tmp_path: Path, name: str) -> None:
    connection = Connection(str(tmp_path / "kept.db"))
    table = AuditTable(connection, 30.0, 100, Capacity(connection))
    rows = (
        row(1, 100.0),
        row(2, 200.0, owner="other", model="n", status=None, ending="cancelled"),
    )
    table.save(rows)
    others: dict[str, Any] = {"owners": ("other",), "model": "n", "status": 200, "ending": "cancelled"}
    values = {"since": 150.0, "until": 150.0, **others}
    asked = AuditFilter(**{name: values[name]})
    stored = [found for _, found in table.list(asked).rows]
    assert stored == [each for each in rows if asked.includes(each)]
    assert len(stored) == 1
    connection.close()


CLIENTS = 4


def chat(client: httpx2.Client, words: str) -> str:
    """Send a chat; return its request's id."""
    body = {"model": "default", "messages": [{"role": "user", "content": words}], "max_tokens": 2}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-request-id"])


def chat_until_killed(server: ServerProcess, ids: list[str], begun: threading.Event) -> None:
    """Send chats until the server is gone."""
    with httpx2.Client(base_url=server.address, timeout=60, trust_env=False) as client:
        try:
            while True:
                ids.append(chat(client, f"chat {len(ids)}"))
                if len(ids) > 20:
                    begun.set()
        except httpx2.TransportError:
            return


def rows_of(database: Path) -> set[str]:
    """Return the ids of the stored requests of an intact database."""
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        found = [ident for (ident,) in connection.execute("select request_id from greenroom_audit")]
        [(sums,)] = connection.execute("select coalesce(sum(requests), 0) from greenroom_usage")
    assert sums == len(found) == len(set(found))
    return set(found)


def audited(client: httpx2.Client) -> Any:
    return client.get("/admin/audit?limit=1000").json()


@pytest.mark.deep
def test_a_killed_server_leaves_whole_batches_and_the_next_goes_on(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    arguments, ids = (str(tiny_model("qwen3")), "--db", str(tmp_path / "kept.db")), list[str]()
    begun = threading.Event()
    with serving(*arguments) as server, ThreadPoolExecutor(CLIENTS) as threads:
        try:
            running = [threads.submit(chat_until_killed, server, ids, begun) for _ in range(CLIENTS)]
            assert begun.wait(120)
            first = set(ids)
            deadline = time.monotonic() + 60
            with httpx2.Client(base_url=server.address, trust_env=False) as client:
                while not first <= {entry["id"] for entry in audited(client)["requests"]}:
                    assert time.monotonic() < deadline
        finally:
            server.process.kill()
        for each in running:
            each.result(60)
    kept = rows_of(tmp_path / "kept.db")
    assert first <= kept
    with (
        serving(*arguments) as server,
        httpx2.Client(base_url=server.address, timeout=60, trust_env=False) as client,
    ):
        last = chat(client, "And now?")
        while audited(client)["requests"][0]["id"] != last:
            pass
    assert rows_of(tmp_path / "kept.db") >= kept | {last}


@pytest.mark.deep
def test_a_server_whose_database_may_not_grow_answers_and_says_what_it_cannot_keep(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    arguments = (str(tiny_model("qwen3")), "--db", str(tmp_path / "kept.db"), "--store-max-bytes", "1")
    with serving(*arguments) as server:
        with httpx2.Client(base_url=server.address, timeout=60, trust_env=False) as client:
            chat(client, "first")
            told = server.wait_for("audit not written")
            for number in range(5):
                chat(client, f"chat {number}")
            wait_until(lambda: audited(client)["waiting"] == 6)  # they are counted behind their answers
            assert audited(client)["requests"] == []
            assert b"greenroom:audit_rows_waiting 6.0" in client.get("/metrics").content
        server.process.terminate()
        assert server.end() == 0
        lost = [line for line in server.read_log() if line["event"] == "audit rows lost"]
    assert (told["problem"], told["level"]) == ("storage_full", "warning")
    assert [line["rows"] for line in lost] == [6]
