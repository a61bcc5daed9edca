"""A server that a command starts while a client runs, because no other server runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenroom.http.process.runtime_file import RunningServer, running_servers

_LOOK = 0.1
"""Seconds between checks whether the server is ready."""
_END_SECONDS = 40.0


@contextmanager
def own_server(model: str | None, log: Path) -> Iterator[RunningServer]:
    """Run a server on a free port within the block.

    Args:
        model: Folder or hub id; None for the models of the settings.
        log: File for its log.

    Raises:
        RuntimeError: It ended before it listened; the message is the end of its log.
        OSError: It cannot be started.
    """
    command = [sys.executable, "-m", "greenroom.http.command_line", "serve", "--port", "0"]
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("wb") as file:
        # In a session of its own: the interrupts of the terminal are the client's.
        process = subprocess.Popen(
            [*command, *([model] if model else [])],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield _wait_for(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> RunningServer:
    while process.poll() is None:
        for server in running_servers():
            if server.pid == process.pid and server.urls:
                return server
        time.sleep(_LOOK)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise RuntimeError(lines[-1] if lines else f"the server ended with status {process.returncode}")
