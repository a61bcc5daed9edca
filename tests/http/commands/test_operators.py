"""`greenroom ps`, `load`, `unload`, `pin`, `unpin` and `cancel` on a server in a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from rich.console import Console

from greenroom.http.commands.operate import tables
from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE, OutputLines, bounded, wait_until
from greenroom.tests.support.servers.server_processes import GREENROOM, ServerProcess, run_greenroom, serving


@pytest.fixture(scope="module")
def server(tiny_model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    database = str(tmp_path_factory.mktemp("data") / "db")
    with serving(str(tiny_model("qwen3")), str(tiny_model("llama")), "--db", database) as server:
        yield server


def on(server: ServerProcess, *arguments: str) -> str:
    done = run_greenroom(*arguments, "--url", server.address)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@contextmanager
def endless_chat(server: ServerProcess) -> Iterator[tuple[str, list[str]]]:
    """Stream an endless answer in a thread; yield its request's id and what has come of it at its end."""
    came: list[str] = []
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "Hello"}]}
    streamed = {**body, "stream": True, "max_tokens": 20_000, "ignore_eos": True}
    with (
        httpx2.Client(base_url=server.address, timeout=600) as client,
        client.stream("POST", "/v1/chat/completions", json=streamed) as response,
    ):
        reading = threading.Thread(target=lambda: came.extend(response.iter_lines()), daemon=True)
        reading.start()
        ident = response.headers["x-request-id"]
        try:
            yield ident, came
        finally:
            run_greenroom("cancel", ident, "--url", server.address)
            reading.join(PATIENCE)


def test_models_are_loaded_pinned_and_unloaded(server: ServerProcess) -> None:
    assert on(server, "load", "default").startswith("qwen3 is ready, after ")
    assert on(server, "pin", "qwen3") == "qwen3 is pinned.\n"
    [row] = on(server, "ps").splitlines()
    model, state, size, running, waiting, stays = row.split("\t")
    assert (model, state, running, waiting, stays) == ("qwen3", "ready", "0", "0", "pinned")
    assert size.endswith(" MB")
    assert on(server, "unpin", "qwen3") == "qwen3 is no longer pinned.\n"
    assert json.loads(on(server, "ps", "--json"))["models"][0]["pinned"] is False
    assert "qwen3 is unloaded" in on(server, "unload", "qwen3")
    assert on(server, "unload", "qwen3", "--now") == "qwen3 is not loaded.\n"


def test_ps_watches_a_request_until_it_is_cancelled(server: ServerProcess) -> None:
    on(server, "load", "qwen3")
    command = [*GREENROOM, "ps", "--watch", "--interval", "1", "--url", server.address]
    with (
        bounded(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as watching,
        endless_chat(server) as (ident, came),
    ):
        lines, recorded = OutputLines(watching.stdout), list[str]()

        def record_until(shown: Callable[[str], bool]) -> None:
            while not recorded or not shown(recorded[-1]):
                recorded.append(lines.next())
                assert recorded[-1], recorded
                assert len(recorded) < 1_000, recorded[-20:]

        record_until(lambda line: line.startswith(f"{ident}\tqwen3\tdecode\t"))
        assert recorded[0].startswith("qwen3\tready\t")
        *_, prompt, cached, generated, seconds = recorded[-1].strip().split("\t")
        assert int(prompt) > int(cached) >= 0
        assert int(generated) > 0
        assert float(seconds) >= 0
        assert on(server, "cancel", ident) == f"{ident} is cancelled.\n"
        record_until(lambda line: line.startswith("qwen3\tready\t") and "\t0\t0\t" in line)
        assert "\n" in recorded  # a blank line ends each look
    assert "request_cancelled" in "".join(came)


def test_the_tables_of_the_terminal() -> None:
    model = {
        "id": "org/na\x1b]me[it]",
        "state": "loading",
        "load_progress": 0.421,
        "bytes": 2_500_000_000,
        "running": 0,
        "waiting": 1,
        "pinned": False,
        "expires_at": None,
    }
    row = {"stage": "decode", "prompt_tokens": 1200, "cached_tokens": 1024, "generated_tokens": 77}
    request = {"id": "req_1", "model": "org/other", "state": "running", "seconds": 3.25, "rows": [row]}
    waiting = {**request, "id": "req_2", "state": "waiting", "rows": []}
    file = io.StringIO()
    tools = {"label": "ti\x1bme", "state": "open", "tools": ["now"], "calls": 2, "failures": 1, "error": ""}
    look = {"models": [model], "requests": [request, waiting], "mcp": [tools]}
    Console(file=file, width=100, no_color=True).print(tables(look))
    lines = [line.split() for line in file.getvalue().splitlines() if line.strip()]
    assert lines[1] == ["org/na\\x1b]me[it]", "loading", "42%", "2.5", "GB", "0", "1"]
    assert lines[3] == ["req_1", "org/other", "decode", "1200", "1024", "77", "3.2"]
    assert lines[4] == ["req_2", "org/other", "waiting", "3.2"]
    assert lines[6] == ["ti\\x1bme", "open", "1", "2", "1"]
    assert "\x1b" not in file.getvalue()


def test_a_wrong_name_or_address_is_one_line(server: ServerProcess, tmp_path: Path) -> None:
    for arguments, status, named in (
        (("load", "no/such", "--url", server.address), 1, "no/such"),
        (("cancel", "req_0", "--url", server.address), 1, "No request"),
        (("ps", "--url", "http://127.0.0.1:9"), 1, "no Greenroom server answers at http://127.0.0.1:9"),
        (("ps", "--url", "ftp://localhost"), 2, "is neither a URL"),
        (("ps", "--url", "http://localhost:99999"), 2, "is neither a URL"),
        (("ps", "--interval", "0", "--url", server.address), 2, "--interval"),
    ):
        refused = run_greenroom(*arguments)
        assert (refused.returncode, refused.stdout) == (status, "")
        assert named in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.deep
def test_commands_find_a_running_server_and_say_when_they_need_an_admin_key(tmp_path: Path) -> None:
    database = str(tmp_path / "db")
    with serving("--db", database) as server:
        for command in ("ps", "audit", "usage"):
            assert run_greenroom(command).returncode == 0
        guest = run_greenroom("keys", "add", "guest", "--url", server.address)
        assert guest.returncode == 0, guest.stderr
        for command in ("ps", "audit", "usage"):
            for place in ((), ("--url", server.address)):
                found = run_greenroom(command, *place)
                assert (found.returncode, found.stderr) == (0, ""), command
        boss = run_greenroom("keys", "add", "boss", "--admin", "--url", server.address)
        assert boss.returncode == 0, boss.stderr
        for command in ("ps", "audit", "usage"):
            refused = run_greenroom(command)
            assert refused.returncode == 1
            assert "needs an admin key" in refused.stderr
            assert "GREENROOM_API_KEY" in refused.stderr


def last_404(server: ServerProcess) -> str:
    return on(server, "audit", "--limit", "1", "--status", "404")


def test_a_client_writes_no_lines_of_its_own_into_the_audit(server: ServerProcess) -> None:
    httpx2.get(f"{server.address}/nope/%0A9%20%20forged%0D%09%1B[2J", timeout=PATIENCE)
    wait_until(lambda: "/nope/" in last_404(server))  # it is written behind the answer
    [line] = last_404(server).splitlines()
    assert "GET /nope/\\x0a9  forged\\x0d\\x09\\x1b[2J" in line


def test_at_a_terminal_a_heading_names_the_audits_columns(server: ServerProcess) -> None:
    httpx2.get(f"{server.address}/heading", timeout=PATIENCE)
    wait_until(lambda: "/heading" in last_404(server))
    ours, theirs = pty.openpty()
    command = [*GREENROOM, "audit", "--limit", "1", "--status", "404", "--url", server.address]
    with bounded(subprocess.Popen(command, stdout=theirs)), open(ours, "rb", buffering=0) as terminal:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # the end of a terminal, on Linux
            while part := terminal.read(65_536):
                told += part
    heading, line = (row.split("  ") for row in told.decode().splitlines())
    assert heading[:4] == ["number", "time", "key", "ending"]
    assert len(line) == len(heading)
    assert (line[heading.index("status")], line[heading.index("route")]) == ("404", "GET /heading")
