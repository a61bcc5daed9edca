"""The supervising parent, with real children, sockets and signals; its own process is a real one too."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from greenroom.http.process.exit_status import ExitStatus, Terminal
from greenroom.http.supervision.heartbeat import SilenceLimits, Systemd
from greenroom.http.supervision.supervisor import STOP_RESERVE, ParentLog, Supervisor
from greenroom.tests.support.servers.bounded_waits import PATIENCE, OutputLines, wait_until
from greenroom.tests.support.servers.server_processes import kill_children

NOTES = Path(__file__).resolve().parents[3] / "notes"

PARENT = """
import os, socket, sys
from greenroom.http.supervision.supervisor import ParentLog
from greenroom.http.supervision.heartbeat import SilenceLimits
from greenroom.http.process.exit_status import ExitStatus
from greenroom.http.supervision.supervisor import Supervisor
from greenroom.http.supervision.heartbeat import Systemd

sockets = [socket.create_server(("127.0.0.1", 0))]
command = [sys.executable, "-c", sys.argv[1]]
serving, importing, stopping = map(float, sys.argv[2:])
limits = SilenceLimits(serving, importing)
log, systemd = ParentLog("json", "info"), Systemd(os.environ)
sys.exit(Supervisor(command, sockets, stopping, log, systemd, limits, "https").run())
"""
"""A parent of a small child, with limits of its silence and its end."""

CHILD = """
import ctypes, os, signal, socket, sys, threading, time
from greenroom.http.supervision.heartbeats import Heartbeats, ParentPipe
from greenroom.http.supervision.heartbeat import inherit

inherited = inherit(os.environ)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGHUP, lambda *_: os.write(2, b'{"event": "reloaded"}\\n'))
heartbeats = Heartbeats(inherited.parent.interval, [ParentPipe(inherited.parent.pipe).send])
[sock] = inherited.sockets
heartbeats.enter("serving")
restarts, left_out = inherited.parent.restarts, inherited.parent.left_out
while True:
    connection, _ = sock.accept()
    word = connection.recv(100).decode()
    if word == "hello":
        connection.sendall(f"{os.getpid()} {restarts} {' '.join(left_out)}".encode())
    elif word == "abort":
        heartbeats.record(False, ("org/bad",))
        os.abort()
    elif word == "hold":
        heartbeats.record(False, ("org/slow",))
        ctypes.PyDLL(None).sleep(600)
    elif word == "import":
        heartbeats.record(True, ("org/slow",))
        ctypes.PyDLL(None).sleep(2)
        heartbeats.record(False, ())
    elif word.isdigit():
        os._exit(int(word))
    connection.close()
"""
"""A server that answers `hello`, and otherwise fails as it is told."""


class Parent:
    """A supervising parent in a separate process."""

    def __init__(self, process: subprocess.Popen[str], lines: OutputLines) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self._lines = lines
        [address] = self.wait_for("supervising")["addresses"]
        assert address.startswith("https://127.0.0.1:")
        self.place = ("127.0.0.1", int(address.rpartition(":")[2]))

    def wait_for(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while line := self._lines.next(deadline - time.monotonic()):
            if line.startswith("{"):
                self.log.append(json.loads(line))
                if self.log[-1]["event"] == name:
                    return self.log[-1]
        raise AssertionError(f"no {name} in {self.log}")

    def kill(self) -> None:
        """Kill it, and its child, which may hang."""
        if self.process.poll() is None:
            self.process.kill()
            rest = [json.loads(line) for line in self._lines.so_far() if line.startswith("{")]
            kill_children(self.log + rest)

    def tell(self, word: str) -> None:
        with socket.create_connection(self.place, timeout=PATIENCE) as client:
            client.sendall(word.encode())

    def hello(self) -> tuple[int, int, list[str]]:
        """Return the child's pid, the number of restarts, and the models that are left out."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := self._ask("hello")):  # a child that was just killed had accepted the connection
            assert time.monotonic() < deadline, self._lines.so_far()
        pid, restarts, *left_out = answer.split(" ")
        return int(pid), int(restarts), list(filter(None, left_out))

    def _ask(self, word: str) -> str:
        with (
            contextlib.suppress(ConnectionResetError),
            socket.create_connection(self.place, timeout=PATIENCE) as client,
        ):
            client.sendall(word.encode())
            return client.recv(1000).decode()
        return ""


@contextmanager
def supervising(
    child: str = CHILD, serving: float = PATIENCE, importing: float = PATIENCE, stopping: float = PATIENCE
) -> Iterator[Parent]:
    command = [sys.executable, "-c", PARENT, child, *map(str, (serving, importing, stopping))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            parent = Parent(process, OutputLines(process.stderr))
            try:
                yield parent
            finally:
                parent.kill()
        finally:
            process.kill()


def test_a_killed_child_is_replaced_and_nobody_is_refused() -> None:
    nameless = getattr(signal, "SIGRTMAX", signal.SIGKILL + 1) - 1
    with supervising() as parent:
        for restarts, number in enumerate((signal.SIGKILL, nameless, signal.SIGKILL)):
            pid, told, _ = parent.hello()
            assert told == restarts
            os.kill(pid, number)
            with socket.create_connection(parent.place, timeout=PATIENCE):
                pass  # accepted by the system even while no child runs
        died = parent.wait_for("server died")
        assert (died["signal"], died["status"]) == ("SIGKILL", 137)


def test_a_model_that_was_at_work_when_the_child_aborted_is_left_out_and_named() -> None:
    with supervising() as parent:
        parent.tell("abort")
        assert parent.hello()[1:] == (1, ["org/bad"])
        died = parent.wait_for("server died")
        assert (died["signal"], died["left_out"]) == ("SIGABRT", ["org/bad"])


@pytest.mark.parametrize("how", ["hold", "stop"])
def test_a_silent_child_is_killed(how: str) -> None:
    with supervising(serving=1.0) as parent:
        pid, *_ = parent.hello()
        if how == "hold":
            parent.tell("hold")  # a C call that holds the interpreter's lock
        else:
            os.kill(pid, signal.SIGSTOP)
        assert parent.wait_for("server silent")["seconds"] >= 1.0
        assert parent.wait_for("server died")["signal"] == "SIGKILL"
        assert parent.hello()[1:] == (1, ["org/slow"] if how == "hold" else [])


def test_a_child_that_imports_may_be_silent_for_longer() -> None:
    with supervising(serving=1.0) as parent:
        pid, *_ = parent.hello()
        parent.tell("import")
        assert parent.hello() == (pid, 0, [])


def test_a_child_that_never_gives_a_sign_is_killed_too() -> None:
    with supervising("import time; time.sleep(600)", importing=1.0) as parent:
        parent.wait_for("server silent")
        assert parent.wait_for("server died")["restart_seconds"] == 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_parent_and_child_and_frees_the_address(number: signal.Signals) -> None:
    with supervising() as parent:
        parent.hello()
        parent.process.send_signal(number)
        assert parent.process.wait(PATIENCE) == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(parent.place, timeout=PATIENCE)


def test_a_signal_between_two_children_ends_the_parent() -> None:
    with supervising("import os; os.abort()") as parent:
        parent.wait_for("server died")
        parent.process.send_signal(signal.SIGTERM)
        assert parent.process.wait(PATIENCE) == 0


class LongLook(Terminal):
    """A terminal at which a signal to end comes while it is looked at."""

    @property
    def is_gone(self) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return False


def test_a_signal_that_comes_while_another_is_looked_at_ends_a_pause() -> None:
    parent = Supervisor((), (), 1.0, ParentLog("json", "error"), Systemd({}), SilenceLimits(0.1, 0.1))
    parent._terminal = LongLook()
    parent._wakeup, write = os.pipe()
    os.set_blocking(parent._wakeup, False)
    parent._received.append(signal.SIGHUP)
    before = signal.signal(signal.SIGTERM, lambda number, _frame: parent._received.append(number))
    try:
        assert not parent._pause(PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)
        os.close(parent._wakeup)
        os.close(write)


def test_a_child_that_does_not_end_is_forced_after_its_time() -> None:
    deaf = CHILD.replace("lambda *_: os._exit(0)", "signal.SIG_IGN")
    with supervising(deaf, stopping=0.5 - STOP_RESERVE) as parent:
        parent.hello()
        parent.process.send_signal(signal.SIGTERM)
        parent.wait_for("shutdown forced")
        assert parent.process.wait(PATIENCE) == 75


def test_a_hang_up_is_passed_on() -> None:
    with supervising() as parent:
        pid, *_ = parent.hello()
        parent.process.send_signal(signal.SIGHUP)
        parent.wait_for("reloaded")
        assert parent.hello()[0] == pid


def test_a_storm_of_hang_ups_ends_neither_parent_nor_child() -> None:
    with supervising() as parent:
        for _ in range(2_000):  # many before the child has a handler
            parent.process.send_signal(signal.SIGHUP)
        pid, restarts, _ = parent.hello()
        for _ in range(2_000):
            parent.process.send_signal(signal.SIGHUP)
        parent.wait_for("reloaded")
        assert parent.hello()[:2] == (pid, restarts) == (pid, 0)


@pytest.mark.parametrize("status", ExitStatus)
def test_the_parent_does_what_the_table_of_exit_statuses_says(status: ExitStatus) -> None:
    restart = told_restarts()[status]
    with supervising() as parent:
        parent.tell(str(int(status)))
        if restart == "no":
            assert parent.process.wait(PATIENCE) == status
            return
        assert parent.hello()[1] == 1  # it had served, so others go on too
        assert parent.wait_for("server died")["status"] == status


@pytest.mark.parametrize("status", ExitStatus)
def test_what_an_operator_must_mend_ends_the_parent_at_the_first_start_alone(status: ExitStatus) -> None:
    with supervising(f"raise SystemExit({int(status)})") as parent:
        if told_restarts()[status] != "at once":
            assert parent.process.wait(PATIENCE) == status
            return
        assert parent.wait_for("server died")["restart_seconds"] == 1.0


def told_restarts() -> dict[int, str]:
    """Return the use of a restart by exit status, as the notes tell it."""
    page = (NOTES / "exit-statuses.md").read_text()
    return {
        int(status): restart
        for status, restart in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|", page, re.MULTILINE)
    }


def test_a_child_that_dies_for_ever_is_started_ever_later_until_a_signal_ends_the_parent() -> None:
    with supervising("import os; os.abort()") as parent:
        died = [parent.wait_for("server died") for _ in range(3)]
        assert [each["restart_seconds"] for each in died] == [1.0, 2.0, 4.0]
        assert {(each["signal"], each["status"]) for each in died} == {("SIGABRT", 134)}
        assert len({each["pid"] for each in died}) == 3
        with socket.create_connection(parent.place, timeout=PATIENCE):
            pass  # clients still wait
        parent.process.send_signal(signal.SIGTERM)
        assert parent.process.wait(PATIENCE) == 0


def test_a_child_ends_when_its_parent_was_killed() -> None:
    with supervising() as parent:
        pid, *_ = parent.hello()
        watch = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
        parent.process.kill()
        parent.process.wait(PATIENCE)
        if watch is None:
            pytest.skip("only Linux can wait for a process that is no child")
        import select

        assert select.select([watch], [], [], PATIENCE)[0]
        os.close(watch)


def states_in_group(group: int) -> list[str]:
    """Return the states of a process group's members; `Z` is a dead one that nobody has asked for."""
    command = ["ps", "-eo", "pgid=,stat="]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    pairs = (line.split() for line in shown.splitlines())
    return [state for found, state in pairs if int(found) == group]


def test_processes_that_a_child_leaves_behind_end_with_it() -> None:
    forking = CHILD.replace("while True:", "os.fork() or time.sleep(600)\nwhile True:", 1)
    with supervising(forking) as parent:
        pid, *_ = parent.hello()
        os.kill(pid, signal.SIGKILL)
        assert parent.hello()[1] == 1
        wait_until(lambda: all(state.startswith("Z") for state in states_in_group(pid)))
        left = parent.hello()[0]
    wait_until(lambda: all(state.startswith("Z") for state in states_in_group(left)))


def test_the_parent_takes_less_than_30_megabytes() -> None:
    with supervising() as parent:
        parent.hello()
        assert psutil.Process(parent.process.pid).memory_info().rss < 30e6
