"""The server under test: a separate process with the built-in model."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from greenroom.tests.support.servers.free_port import free_port
from greenroom.tests.support.servers.server_processes import GREENROOM

START_TIMEOUT = 60.0


@contextmanager
def served_model(log_path: Path, *options: str, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the address of a server that logs to a file and is stopped afterwards.

    Args:
        variables: Environment variables of the server beside this process's.

    Raises:
        TimeoutError: The server does not answer.
    """
    port = free_port()
    kept = ("--db", str(log_path.with_name("server.db")))
    command = [*GREENROOM, "serve", "--port", str(port), "--log-format", "json", *kept, *options]
    environment = {**os.environ, **(variables or {})}
    with (
        log_path.open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_until_ready(address, process)
            yield address
        finally:
            process.terminate()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx2.get(f"{address}/readyz", timeout=20).status_code == 200:
                return
        except httpx2.HTTPError:
            time.sleep(0.1)
    raise TimeoutError("the server does not answer")
