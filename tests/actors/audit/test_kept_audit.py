"""The audit of a real server: killed while it writes, and on a database that may not grow."""

from __future__ import annotations

import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

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
            assert (audited(client)["waiting"], audited(client)["requests"]) == (6, [])
            assert b"greenroom:audit_rows_waiting 6.0" in client.get("/metrics").content
        server.process.terminate()
        assert server.end() == 0
        lost = [line for line in server.read_log() if line["event"] == "audit rows lost"]
    assert (told["problem"], told["level"]) == ("storage_full", "warning")
    assert [line["rows"] for line in lost] == [6]
