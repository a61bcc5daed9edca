"""The command line and its servers in separate processes, started as users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from greenroom.tests.support.servers.bounded_waits import PATIENCE, OutputLines
from greenroom.tests.support.servers.forked_commands import ForkedProcess, run_forked

FULL_DISK = ">&3"
"""Redirection to a file that may not grow, as on a full disk. Only Linux has /dev/full."""
_OPEN_FULL_DISK = 'full=$(mktemp) && exec 3>"$full" && rm "$full" && ulimit -f 0 && '
GREENROOM = (sys.executable, "-m", "greenroom.http.command_line")


def run_greenroom(
    *arguments: str, stdin: str = "", redirected: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with further environment variables.

    Args:
        redirected: Shell redirection of its standard streams, such as `</dev/zero` or `FULL_DISK`.
    """
    environment = {**os.environ, **variables}
    if not redirected and may_be_forked(variables):
        return run_forked(arguments, stdin, environment, 600)
    opening = _OPEN_FULL_DISK if redirected == FULL_DISK else ""
    shell = ["sh", "-c", f'{opening}exec "$@" {redirected}', "sh"] if redirected else []
    return subprocess.run(
        [*shell, *GREENROOM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )


def may_be_forked(variables: Mapping[str, str]) -> bool:
    early = ("PYTHON", "LC_", "LANG")  # the interpreter reads these when it starts
    return sys.platform == "linux" and not any(name.startswith(early) for name in variables)


class ServerProcess:
    """A server in a separate process, whose log is read all the time.

    Args:
        only_json: Whether lines of the log that are no JSON fail the test; else they are left out.
    """

    def __init__(self, process: subprocess.Popen[str] | ForkedProcess, *, only_json: bool = True) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self._only_json = only_json
        self._out, self._lines = OutputLines(process.stdout), OutputLines(process.stderr)
        self.address: str = self.wait_for("listening")["addresses"][0]

    def wait_for(self, name: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """Read the log up to the next such event."""
        deadline = time.monotonic() + seconds
        while line := self._lines.next(deadline - time.monotonic()):
            found = self._record(line)
            if found is not None and found["event"] == name:
                return found
        raise AssertionError(f"no {name} in {self.log}")

    def read_log(self) -> list[dict[str, Any]]:
        """Return the log so far."""
        for line in self._lines.so_far():
            self._record(line)
        return self.log

    def end(self, seconds: float = PATIENCE) -> int:
        """Return the exit status; stdout must be empty."""
        status = self.process.wait(seconds)
        for line in self._lines.rest():
            self._record(line)
        assert self._out.rest() == []
        return status

    def kill(self) -> None:
        """Kill it, and the child of a supervising parent, which could not end by itself if it hangs."""
        if self.process.poll() is None:
            self.process.kill()
            kill_children(self.read_log())

    def _record(self, line: str) -> dict[str, Any] | None:
        try:
            self.log.append(json.loads(line))
        except ValueError:
            if self._only_json:
                raise
            return None
        return self.log[-1]


def kill_children(log: Sequence[dict[str, Any]]) -> None:
    """Kill the children of a supervising parent that has just been killed, by its log, and theirs."""
    started = [line["pid"] for line in log if line["event"] == "server started"]
    ended = {line["pid"] for line in log if line["event"] in ("server died", "server ended")}
    for pid in started:
        if pid not in ended:
            with suppress(ProcessLookupError):  # each leads a process group
                os.killpg(pid, signal.SIGKILL)


_FAILING = """
import os, sys, threading, time
from greenroom.actors import system
from greenroom.actors.engines.engines import Engines
from greenroom.http.command_line import main

failure, name, loss_seconds, pace, *arguments = sys.argv[1:]
system.LOSS_SECONDS = float(loss_seconds)
load_engine = Engines.load_engine

def fail():
    os.write(2, b'{"event": "step fails"}\\n')
    if failure == "hang":
        threading.Event().wait()
    raise RuntimeError(failure)

def paced(step):
    def wait_and_step():
        time.sleep(float(pace))
        return step()
    return wait_and_step

def load(engines, opened, *arguments):
    engine = load_engine(engines, opened, *arguments)
    engine.step = fail if opened.folder.name == name else paced(engine.step)
    return engine

Engines.load_engine = load
sys.argv[:] = ["greenroom", *arguments]
main()
"""


def failing(failure: str, model: str, loss_seconds: float = 5.0, pace: float = 0.0) -> tuple[str, ...]:
    """Return the program of a server in which every step of one model fails and logs `step fails`.

    Args:
        failure: Message of a RuntimeError; with `hang`, the step never returns instead.
        model: Folder name of the model.
        loss_seconds: Time in seconds for running answers to finish once the device is lost.
        pace: Seconds added to each step of other models, so that an answer outlives a busy machine.
    """
    return (sys.executable, "-c", _FAILING, failure, model, str(loss_seconds), str(pace))


@contextmanager
def serving(
    *arguments: str,
    descriptors: int | None = None,
    program: tuple[str, ...] | None = None,
    only_json: bool = True,
    **variables: str,
) -> Iterator[ServerProcess]:
    """Run a server, optionally with variables, a hard limit of open files, and a soft one of half as many.

    Args:
        program: Command that starts the program; by default it is forked where that can be.
    """
    options = ("serve", "--port", "0", "--log-format", "json", *arguments)
    command = [*(program or GREENROOM), *options]
    if descriptors is not None:
        command = [
            "sh",
            "-c",
            f'ulimit -Sn {descriptors // 2} && ulimit -Hn {descriptors} && exec "$@"',
            "sh",
            *command,
        ]
    pipe, environment = subprocess.PIPE, {**os.environ, **variables}
    forked = program is None and descriptors is None and may_be_forked(variables)
    started: subprocess.Popen[str] | ForkedProcess = (
        ForkedProcess(options, environment)
        if forked
        else subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
    )
    with started as process:
        try:
            server = ServerProcess(process, only_json=only_json)
            try:
                yield server
            finally:
                server.kill()
        finally:
            process.kill()
