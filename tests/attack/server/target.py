"""The attacked server: a real process, with a calm client beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import httpx2
import psutil

from greenroom.tests.attack.client.calm_log import Calm, CalmLog
from greenroom.tests.attack.server.kinds import plain_request

START_TIMEOUT = 60.0


@attrs.frozen
class Resources:
    """The server's resources: resident memory in bytes, and number of open connections."""

    memory: int
    connections: int


class Target:
    """A server with its calm client.

    Args:
        command: Function from a port to the server's command line; its stderr is a log of JSON lines.
        models: Names of models that generate text; the calm client streams from the first.
        folder: Folder for logs.
        kinds: Names of other models, from `kinds.KINDS`.
    """

    def __init__(
        self,
        command: Callable[[int], list[str]],
        port: int,
        models: tuple[str, ...],
        folder: Path,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._command = command
        self.port = port
        self.models = models
        self.kinds = kinds
        self._folder = folder
        self._starts = 0
        self.log_path = folder / "server.log"

    def start(self) -> None:
        """Start both processes, and wait until the calm client's stream runs."""
        self._starts += 1
        self.log_path = self._folder / f"server-{self._starts}.log"
        with self.log_path.open("w") as log:
            self._server = subprocess.Popen(self._command(self.port), stdout=log, stderr=log)
        self.process = psutil.Process(self._server.pid)
        _until(self.answers, "the server does not answer")
        calm_path = self._folder / f"calm-{self._starts}.log"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        calm = [
            sys.executable,
            "-m",
            "greenroom.tests.attack.client.calm_stream",
            str(self.port),
            self.models[0],
        ]
        with calm_path.open("w") as log:
            self._calm_client = subprocess.Popen(calm, stdout=log, env=environment)
        self._calm = CalmLog(calm_path)
        self._log_read = 0
        if not self.wait_for_calm(pieces=20):
            raise TimeoutError(f"the calm client gets no stream: {self._calm.since(0.0).broken[-3:]}")
        self.log_faults()

    def stop(self) -> None:
        """Kill both processes."""
        for process in (self._calm_client, self._server):
            process.kill()
            process.wait()
        self._calm.close()

    @property
    def ended(self) -> int | None:
        """Exit status of the server; None while it runs."""
        return self._server.poll()

    def terminate(self, timeout: float) -> bool:
        """Send SIGTERM; return whether the server ended within `timeout` seconds."""
        self._server.terminate()
        try:
            self._server.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def resources(self) -> Resources:
        """Return the server's current resources; zeros if it has ended."""
        try:
            return Resources(self.process.memory_info().rss, len(self.process.net_connections("tcp")))
        except psutil.Error:
            return Resources(0, 0)

    def calm_since(self, moment: float) -> Calm:
        """Return the calm client's summary since a moment of `time.monotonic`, and drop earlier lines."""
        self._calm.forget(moment)
        return self._calm.since(moment)

    def wait_for_calm(self, pieces: int, timeout: float = START_TIMEOUT) -> bool:
        """Wait for the calm client's next `pieces` chunks; return whether they came in time."""
        began = time.monotonic()
        while self._calm.since(began).pieces < pieces:
            if time.monotonic() - began > timeout or self.ended is not None:
                return False
            time.sleep(0.01)
        return True

    def log_faults(self) -> list[str]:
        """Return unexpected errors in the server's log since the last call."""
        with self.log_path.open() as log:
            log.seek(self._log_read)
            text = log.read()
            self._log_read = log.tell()
        return [line[:1_000] for line in text.splitlines() if is_fault(line)]

    def answers(self, path: str = "/readyz") -> bool:
        """Return whether the server answers `path` with success."""
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=20).status_code == 200
        except httpx2.HTTPError:
            return False

    def completes(self, model: str, timeout: float = 30.0) -> bool:
        """Return whether a plain request to a model succeeds within `timeout` seconds."""
        path, request = plain_request(model)
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            return httpx2.post(url, timeout=timeout, **request).status_code == 200
        except httpx2.HTTPError:
            return False


def is_fault(line: str) -> bool:
    """Return whether a line of the log is an error, or no JSON (a traceback, a native abort)."""
    try:
        event: Any = json.loads(line)
    except ValueError:
        return bool(line.strip())
    if not isinstance(event, dict):
        return True
    # What a locked database cannot take is lost, and the operator must know.
    return event.get("level") in ("error", "critical") and event.get("problem") != "store_busy"


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.05)
