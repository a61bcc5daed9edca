"""A supervised server: whatever ends or silences its process, clients get the next at the same address."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx2
import psutil
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.bounded_waits import PATIENCE, bounded, wait_until
from greenroom.tests.support.servers.hub_server import Fault, Hub, open_hub
from greenroom.tests.support.servers.server_processes import GREENROOM, ServerProcess, serving

READY_SECONDS = 5.0
"""Seconds after which a calm machine serves again."""
CUT = httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError
"""Failures of who was connected to a process that is killed; a refused connection is none of them."""
NAME, LARGE = "org/chat", "history.txt"
LARGE_BYTES = 8 << 20
"""Size of a file of the pulled model: its beginning reaches the disk before its end arrives."""

PROGRAM = """
import ctypes, os, sys, time
from greenroom.http.command_line import main
from greenroom.http.supervision import supervisor
from greenroom.http.supervision.heartbeat import VARIABLE
from greenroom.http.supervision.heartbeat import SilenceLimits

orders, silence, *arguments = sys.argv[1:]
supervisor.SilenceLimits = lambda: SilenceLimits(serving=float(silence))

def obey():
    try:
        order = open(orders).read()
        os.unlink(orders)
    except FileNotFoundError:
        return
    if order == "abort":
        os.abort()
    if order == "linger":
        return time.sleep(5)
    ctypes.PyDLL(None).sleep(600)

def load(engines, opened, *arguments):
    obey()
    engine = load_engine(engines, opened, *arguments)
    step = engine.step
    def obey_and_step():
        obey()
        return step()
    engine.step = obey_and_step
    return engine

if VARIABLE in os.environ:
    from greenroom.actors.engines.engines import Engines

    load_engine, Engines.load_engine = Engines.load_engine, load
sys.argv[:] = ["greenroom", *arguments]
main()
"""
"""The command line with a limit on silence, whose GPU workers obey an order in a file once."""


class Supervised:
    """A supervised server in a separate process.

    Args:
        orders: File whose content its GPU workers obey.
    """

    def __init__(self, server: ServerProcess, orders: Path) -> None:
        self.server = server
        self.address = server.address
        self.orders = orders

    @property
    def events(self) -> list[str]:
        """The events of the log so far."""
        return [str(line["event"]) for line in self.server.read_log()]

    def logged(self, event: str, **fields: Any) -> dict[str, Any]:
        """Return the last such line of the log, once there is one."""
        wanted = {"event": event, **fields}.items()
        wait_until(lambda: any(wanted <= line.items() for line in self.server.read_log()))
        return [line for line in self.server.log if wanted <= line.items()][-1]

    def pid(self) -> int:
        """Return the serving process, once one is ready."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(*CUT):  # the process that was killed had accepted the connection
                ready = httpx2.get(f"{self.address}/readyz", timeout=120)
                found = httpx2.get(f"{self.address}/health", timeout=120)
                assert ready.status_code == 200, ready.text
                return int(found.json()["pid"])
        raise TimeoutError("no process becomes ready")

    def ask(self, **fields: Any) -> httpx2.Response:
        """Send a short chat."""
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        return httpx2.post(f"{self.address}/v1/chat/completions", json={**body, **fields}, timeout=120)

    def post(self, path: str, **body: Any) -> httpx2.Response:
        """Send an operator's order."""
        return httpx2.post(f"{self.address}{path}", json=body, timeout=120)

    def die_in_a_request(self, kill: str) -> float:
        """End or silence the process while a model computes; return the seconds from its end to the next."""
        before = self.pid()
        assert self.ask().status_code == 200
        if kill in ("abort", "hold"):
            self.orders.write_text(kill)
            with pytest.raises(CUT):
                self.ask()
        else:
            with pytest.raises(CUT):
                self._kill_in_a_stream(before, signal.SIGSTOP if kill == "stop" else signal.SIGKILL)
        assert self.pid() != before
        now = time.time()
        assert self.ask().status_code == 200
        died = self.logged("server died", pid=before)
        return now - datetime.fromisoformat(died["timestamp"]).timestamp()

    def _kill_in_a_stream(self, pid: int, number: int) -> None:
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": "Hello"}],
            "stream": True,
            "max_tokens": 100_000,
            "ignore_eos": True,
        }
        with httpx2.stream("POST", f"{self.address}/v1/chat/completions", json=body, timeout=120) as answer:
            for number_of_line, _ in enumerate(answer.iter_lines()):
                if number_of_line == 4:
                    os.kill(pid, number)

    def end(self) -> int:
        """Tell it to end; return the exit status."""
        self.server.process.send_signal(signal.SIGTERM)
        return self.server.end(120)


@contextmanager
def supervised(tmp_path: Path, *arguments: str, silence: float = PATIENCE) -> Iterator[Supervised]:
    orders = tmp_path / "orders"
    program = (sys.executable, "-c", PROGRAM, str(orders), str(silence))
    # The last words of a process that aborts are no JSON.
    with serving("--supervised", *arguments, program=program, only_json=False) as server:
        yield Supervised(server, orders)


@pytest.mark.deep
def test_an_aborted_server_is_replaced_without_its_model_and_the_next_drains(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = tiny_model("qwen3")
    preload = ("--model-settings", f"{model.name}:preload=true")
    with supervised(tmp_path, str(model), *preload, "--db", str(tmp_path / "db")) as server:
        server.die_in_a_request("abort")
        assert server.logged("server died")["signal"] == "SIGABRT"
        assert server.logged("server died")["left_out"] == [model.name]
        assert server.logged("model not preloaded")["model"] == model.name
        assert psutil.Process(server.server.process.pid).memory_info().rss < 30e6
        assert server.end() == 0
    assert "draining" in server.events
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.address}/readyz")


@pytest.mark.deep
def test_a_log_that_nobody_reads_stops_neither_parent_nor_child() -> None:
    command = [*GREENROOM, "serve", "--supervised", "--port", "0", "--log-format", "json", "--db", ":memory:"]
    with (
        bounded(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)) as parent,
        httpx2.Client(timeout=60) as client,
    ):
        assert parent.stderr is not None
        log = map(json.loads, parent.stderr)
        address = next(line for line in log if line["event"] == "listening")["addresses"][0]
        pid = client.get(f"{address}/health").json()["pid"]
        for _ in range(300):
            assert client.get(f"{address}/v1/models/{'x' * 400}").status_code == 404
        assert select.select((parent.stderr,), (), (), 0)[0]
        assert client.get(f"{address}/health").json()["pid"] == pid
        os.kill(pid, signal.SIGKILL)
        assert httpx2.get(f"{address}/health", timeout=60).json()["pid"] != pid
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60) == 0


@pytest.mark.soak
@pytest.mark.parametrize("kill", ["abort", "hold", "stop"])
def test_servers_that_abort_or_fall_silent_are_replaced(
    tiny_model: TinyModel, tmp_path: Path, kill: str
) -> None:
    arguments = (str(tiny_model("qwen3")), "--db", str(tmp_path / "db"))
    with supervised(tmp_path, *arguments, silence=2.0) as server:
        seconds = server.die_in_a_request(kill)
        print(f"{kill}: ready {seconds:.2f} s after the end")
        assert ("server silent" in server.events) == (kill != "abort")
        assert seconds <= READY_SECONDS
        assert server.end() == 0


@attrs.frozen
class Work:
    """Work of a server in which it is killed.

    Args:
        begin: Function that has the server do it, for each of some clients; what they get may be cut off.
        wait: Function that returns once the server is at it.
    """

    begin: Callable[[], object]
    wait: Callable[[], object]
    clients: int = 1


@pytest.fixture
def hub(tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    files = {path.name: path.read_bytes() for path in tiny_model("llama").iterdir() if path.is_file()}
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with open_hub({NAME: {**files, LARGE: os.urandom(LARGE_BYTES)}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def part_bytes(tmp_path: Path) -> int:
    """Return the size of the large file's part in the cache."""
    return max((part.stat().st_size for part in (tmp_path / "hub").rglob("*.part")), default=0)


def work_of(moment: str, server: Supervised, hub: Hub, tmp_path: Path, chance: random.Random) -> Work:
    """Return the work by its name."""
    at_it = threading.Event()

    def probe() -> None:
        body = {"model": "qwen3", "stream": True, "max_tokens": 200}
        url = f"{server.address}/admin/models/probe"
        with httpx2.stream("POST", url, json=body, timeout=120) as answer:
            for line in answer.iter_lines():
                if line.startswith("event: progress"):
                    at_it.set()

    def loads() -> bool:
        states = httpx2.get(f"{server.address}/admin/models", timeout=120).json()["models"]
        return any(model["id"] == "qwen3" and model["state"] == "loading" for model in states)

    match moment:
        case "requests":
            # The first request of a process loads the model; each is stored.
            return Work(lambda: server.ask(store=True), lambda: time.sleep(chance.random()), 4)
        case "loads":
            assert server.post("/admin/models/unload", model="qwen3").status_code == 200
            server.orders.write_text("linger")
            return Work(
                lambda: server.post("/admin/models/load", model="qwen3"), lambda: wait_until(loads, 60)
            )
        case "probes":
            return Work(probe, lambda: at_it.wait(120) or pytest.fail("the probe does not begin"))
    hub.faults[f"{NAME}/{LARGE}"] = Fault(chance.randrange(LARGE_BYTES // 2, LARGE_BYTES), "hold")
    hub.held.clear()
    return Work(
        lambda: server.post("/admin/pull", model=NAME, probe=False),
        lambda: wait_until(lambda: hub.held.is_set() and part_bytes(tmp_path) > 0, 120),
    )


@contextmanager
def knocking(address: str) -> Iterator[list[OSError]]:
    """Connect ten times a second; yield the list of what has failed."""
    failed, ended = list[OSError](), threading.Event()
    place = urlsplit(address)

    def knock() -> None:
        while not ended.wait(0.1):
            try:
                socket.create_connection((str(place.hostname), place.port or 0), timeout=60).close()
            except OSError as error:
                failed.append(error)

    thread = threading.Thread(target=knock, daemon=True)
    thread.start()
    try:
        yield failed
    finally:
        ended.set()
        thread.join(120)


def kill_at(work: Work, server: Supervised) -> float:
    """Kill the process at its work; return the seconds until the next is ready."""
    pid = server.pid()
    with ThreadPoolExecutor(work.clients) as clients, knocking(server.address) as refused:
        begun = [clients.submit(work.begin) for _ in range(work.clients)]
        try:
            work.wait()
        finally:
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        assert server.pid() != pid
        seconds = time.monotonic() - killed
        for each in begun:
            cut = each.exception(120)
            assert cut is None or isinstance(cut, CUT), cut
    assert refused == []
    return seconds


QUICK = ("loads", "downloads")
TWENTY = ("requests", "loads", "probes", "downloads") * 5


@pytest.mark.deep
@pytest.mark.parametrize("moments", [QUICK, pytest.param(TWENTY, marks=pytest.mark.soak)], ids=["2", "20"])
def test_kills_at_any_moment_refuse_nobody_and_leave_the_database_whole(
    tiny_model: TinyModel, tmp_path: Path, hub: Hub, moments: tuple[str, ...]
) -> None:
    chance, database, kept = random.Random(20), tmp_path / "db", list[int]()
    with supervised(tmp_path, str(tiny_model("qwen3")), "--db", str(database)) as server:
        for moment in moments:
            seconds = kill_at(work_of(moment, server, hub, tmp_path, chance), server)
            print(f"{moment}: ready after {seconds:.2f} s")
            if moment == "downloads":
                kept.append(part_bytes(tmp_path))
            assert seconds <= (READY_SECONDS if moments is TWENTY else PATIENCE)
            assert server.ask(store=True).status_code == 200
            with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert '"completed"' in server.post("/admin/pull", model=NAME, probe=False).text
        assert hub.asked(LARGE) == ["", *(f"bytes={size}-" for size in kept)]
        assert min(kept) > 0
        assert server.ask(model=NAME).status_code == 200
        assert server.events.count("server died") == len(moments)
        assert server.end() == 0
