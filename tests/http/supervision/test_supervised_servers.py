"""A supervised server: whatever ends or silences its process, clients get the next at the same address."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from greenroom.tests.support.models.tiny_models import TinyModel
from greenroom.tests.support.servers.server_processes import ServerProcess, serving

PROGRAM = """
import ctypes, os, sys
from greenroom.http.command_line import main
from greenroom.http.supervision import supervise
from greenroom.http.supervision.inheritance import VARIABLE
from greenroom.http.supervision.silence import SilenceLimits

orders, *arguments = sys.argv[1:]
supervise.SilenceLimits = lambda: SilenceLimits(serving=2.0)

def obey():
    try:
        order = open(orders).read()
        os.unlink(orders)
    except FileNotFoundError:
        return
    if order == "abort":
        os.abort()
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
"""The command line with a short limit on silence, whose GPU workers obey an order in a file once."""


class Supervised:
    """A supervised server in a separate process, whose log is read all the time."""

    def __init__(self, server: ServerProcess, orders: Path) -> None:
        self.server = server
        self.address = server.address
        self.orders = orders
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def events(self) -> list[str]:
        """The events of the log so far."""
        return [str(line["event"]) for line in self.server.log]

    def logged(self, event: str) -> dict[str, Any]:
        """Return the last such line of the log."""
        return [line for line in self.server.log if line["event"] == event][-1]

    def pid(self) -> int:
        """Return the serving process, once one is ready."""
        while True:
            try:
                ready = httpx2.get(f"{self.address}/readyz", timeout=120)
                found = httpx2.get(f"{self.address}/health", timeout=120)
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                continue  # the process that was killed had accepted the connection
            assert ready.status_code == 200, ready.text
            return int(found.json()["pid"])

    def ask(self, **fields: Any) -> httpx2.Response:
        """Send a short chat."""
        body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        return httpx2.post(f"{self.address}/v1/chat/completions", json={**body, **fields}, timeout=120)

    def die_in_a_request(self, kill: str) -> None:
        """End or silence the process while a model computes, and wait for the next."""
        before = self.pid()
        assert self.ask().status_code == 200
        if kill in ("abort", "hold"):
            self.orders.write_text(kill)
            with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
                self.ask()
        else:
            with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
                self._kill_in_a_stream(before, signal.SIGSTOP if kill == "stop" else signal.SIGKILL)
        assert self.pid() != before
        assert self.ask().status_code == 200

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
        status = self.server.process.wait(120)
        self._reader.join(60)
        return status

    def _read(self) -> None:
        assert self.server.process.stderr is not None
        for line in self.server.process.stderr:
            with suppress(ValueError):  # faulthandler's last words are no JSON
                self.server.log.append(json.loads(line))


@contextmanager
def supervised(tmp_path: Path, *arguments: str) -> Iterator[Supervised]:
    orders = tmp_path / "orders"
    program = (sys.executable, "-c", PROGRAM, str(orders))
    with serving("--supervised", *arguments, program=program) as server:
        yield Supervised(server, orders)


def test_killed_and_aborted_servers_are_replaced_and_the_rest_drains(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    model = tiny_model("qwen3")
    preload = ("--model-settings", f"{model.name}:preload=true")
    with supervised(tmp_path, str(model), *preload, "--db", str(tmp_path / "db")) as server:
        server.die_in_a_request("kill")
        server.die_in_a_request("abort")
        assert server.logged("server died")["signal"] == "SIGABRT"
        assert server.logged("server died")["left_out"] == [model.name]
        assert server.logged("model not preloaded")["model"] == model.name
        shown = subprocess.run(
            ["ps", "-o", "rss=", "-p", str(server.server.process.pid)], capture_output=True, text=True
        )
        assert int(shown.stdout) * 1024 < 30e6
        assert server.end() == 0
    assert "draining" in server.events
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.address}/readyz")


@pytest.mark.soak
@pytest.mark.parametrize("kill", ["hold", "stop"])
def test_silent_servers_are_replaced(tiny_model: TinyModel, tmp_path: Path, kill: str) -> None:
    with supervised(tmp_path, str(tiny_model("qwen3")), "--db", str(tmp_path / "db")) as server:
        server.die_in_a_request(kill)
        assert "server silent" in server.events
        assert server.end() == 0


@pytest.mark.soak
def test_twenty_kills_at_any_moment_refuse_nobody_and_leave_the_database_whole(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    chance, database = random.Random(20), tmp_path / "db"
    with supervised(tmp_path, str(tiny_model("qwen3")), "--db", str(database)) as server:
        for _ in range(20):
            pid = server.pid()
            with ThreadPoolExecutor(4) as clients:
                # The first request of a process loads the model; each is stored.
                asked = [clients.submit(server.ask, store=True) for _ in range(4)]
                time.sleep(chance.random())
                os.kill(pid, signal.SIGKILL)
                began = time.monotonic()
                assert server.pid() != pid
                print(f"ready after {time.monotonic() - began:.2f} s")
                for each in asked:
                    cut = each.exception()
                    assert cut is None or isinstance(cut, httpx2.ReadError | httpx2.RemoteProtocolError), cut
            assert server.ask(store=True).status_code == 200
            with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()
        assert server.events.count("server died") == 20
        assert server.end() == 0
