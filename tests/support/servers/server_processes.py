"""The command line and its servers in separate processes, started as users start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FULL_DISK = ">&3"
"""Redirection to a file that may not grow, as on a full disk. Only Linux has /dev/full."""
_OPEN_FULL_DISK = 'full=$(mktemp) && exec 3>"$full" && rm "$full" && ulimit -f 0 && '
SILENT_SECONDS = 240
"""Time for an event of a server on a busy machine; then it is killed, so that no test waits for ever."""
GREENROOM = (sys.executable, "-m", "greenroom.http.command_line")


def run_greenroom(
    *arguments: str, stdin: str = "", redirected: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with further environment variables.

    Args:
        redirected: Shell redirection of its standard streams, such as `</dev/zero` or `FULL_DISK`.
    """
    opening = _OPEN_FULL_DISK if redirected == FULL_DISK else ""
    shell = ["sh", "-c", f'{opening}exec "$@" {redirected}', "sh"] if redirected else []
    return subprocess.run(
        [*shell, *GREENROOM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **variables},
    )


class ServerProcess:
    """A server in a separate process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[dict[str, Any]] = []
        self.address: str = self.wait_for("listening")["addresses"][0]

    def wait_for(self, name: str) -> dict[str, Any]:
        """Read the log up to an event, for at most `SILENT_SECONDS`; fail if a line is no JSON."""
        assert self.process.stderr is not None
        limit = threading.Timer(SILENT_SECONDS, self.process.kill)
        limit.start()
        try:
            for line in self.process.stderr:
                self.log.append(json.loads(line))
                if self.log[-1]["event"] == name:
                    return self.log[-1]
        finally:
            limit.cancel()
        raise AssertionError(f"no {name} in {self.log}")

    def end(self, seconds: float = 60) -> int:
        """Return the exit status; the rest of the log must be JSON, and stdout empty."""
        out, err = self.process.communicate(timeout=seconds)
        self.log += [json.loads(line) for line in err.splitlines()]
        assert out == ""
        return self.process.returncode


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
    *arguments: str, descriptors: int | None = None, program: tuple[str, ...] = GREENROOM
) -> Iterator[ServerProcess]:
    """Run a server, optionally with a hard limit of open files, and a soft limit of half as many."""
    command = [*program, "serve", "--port", "0", "--log-format", "json", *arguments]
    if descriptors is not None:
        command = [
            "sh",
            "-c",
            f'ulimit -Sn {descriptors // 2} && ulimit -Hn {descriptors} && exec "$@"',
            "sh",
            *command,
        ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()
