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
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from greenroom.engine.loading.libraries import import_text_libraries
import_text_libraries()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


# mlx-lm's own 2,048 of 4,096 would fail below that, and cut what is above it.
@pytest.mark.parametrize(
    ("soft", "hard", "after"), [(256, 1024, "1024 1024"), (512, 4000, "4000 4000"), (4096, 4096, "4096 4096")]
)
def test_the_limit_of_open_files_is_never_lowered(soft: int, hard: int, after: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < hard:
        pytest.skip(f"no process may open more than {most} files here")
    program = PROGRAM.format(soft=soft, hard=hard)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == after, done.stderr


REFUSED = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))

def refuse(*_):
    raise {error}("a bound of the kernel's own")

resource.setrlimit = refuse
from greenroom.engine.loading.libraries import import_text_libraries
import_text_libraries()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize("error", ["OSError", "ValueError"])
def test_a_kernel_that_refuses_more_files_hinders_no_load(error: str) -> None:
    program = REFUSED.format(error=error)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "256 4096", done.stderr


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
