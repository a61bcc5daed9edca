"""Tests that imports of the model libraries leave the process unchanged."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from greenroom.engine.loading.libraries import FetchRefusedError, offline

PROGRAM = """
import resource
import os
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
before = dict(os.environ)
from greenroom.engine.loading.libraries import import_text_libraries
import_text_libraries()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), before == os.environ)
"""


# mlx-lm's own 2,048 of 4,096 would fail below that, and cut what is above it.
@pytest.mark.parametrize(("soft", "hard"), [pytest.param(256, 1024, marks=pytest.mark.deep), (4096, 4096)])
def test_the_limit_of_open_files_and_the_environment_stay_as_they_were(soft: int, hard: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < hard:
        pytest.skip(f"no process may open more than {most} files here")
    program = PROGRAM.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == f"{soft} {hard} True", done.stderr


WATCHED = """
import sys
from greenroom.engine.loading.devices import use_device
from greenroom.engine.loading.libraries import watch_imports
from greenroom.schemas.settings.settings import Settings

told = []

class Finder:
    def find_spec(self, name, *_):
        if name == "mlx.core":
            print(told)

watch_imports(told.append)
sys.meta_path.insert(0, Finder())
use_device(Settings())
use_device(Settings())
print(told)
"""


def test_a_watcher_hears_of_the_import_of_mlx_before_it_begins() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, timeout=600)
    assert done.stdout == "[True]\n[True, False]\n", done.stderr


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
