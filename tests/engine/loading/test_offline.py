"""Tests of threads on which foreign code must not download."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from greenroom.engine.loading.libraries import FetchRefusedError, offline


def connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "fetch",
    [
        connect,
        lambda: socket.getaddrinfo("example.invalid", 80),
        lambda: subprocess.run([sys.executable, "--version"], capture_output=True),
        lambda: subprocess.run(["/usr/bin/curl", "http://127.0.0.1:9"], check=False),
    ],
)
def test_connections_and_child_processes_are_refused(fetch: Callable[[], Any]) -> None:
    with offline(), offline():
        pass
    with offline(), pytest.raises(FetchRefusedError):
        fetch()


def test_looking_at_the_system_is_no_fetching() -> None:
    with offline():
        assert subprocess.run(["true"], check=False).returncode == 0


def test_libraries_meet_the_refusal_too() -> None:
    with offline(), pytest.raises(FetchRefusedError):
        httpx2.get("http://127.0.0.1:9/")


def test_other_threads_and_later_times_are_free() -> None:
    refused: list[BaseException] = []

    def connect_there() -> None:
        try:
            connect()
        except ConnectionRefusedError as error:
            refused.append(error)

    with offline():
        thread = threading.Thread(target=connect_there)
        thread.start()
        thread.join()
    connect_there()
    assert [type(error) for error in refused] == [ConnectionRefusedError] * 2
