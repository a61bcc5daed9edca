"""Servers started by systemd, as far as sockets and messages go: activation, readiness, watchdog, end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from greenroom.tests.support.engines.schedules import deep_only
from greenroom.tests.support.servers.bounded_waits import bounded
from greenroom.tests.support.servers.server_processes import GREENROOM

ACTIVATE = """
import os, sys
listening = int(sys.argv[1])
os.dup2(listening, 3)  # dup2 makes it inheritable
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", WATCHDOG_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a program as systemd does, with a listening socket."""


@pytest.mark.parametrize("mode", [(), *deep_only(("--supervised",))], ids=["lone", "supervised"])
def test_it_serves_on_systemds_socket_and_tells_it_of_its_state(
    mode: tuple[str, ...], tmp_path: Path
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(120)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "600000000" if not mode else "3000000",
            "GREENROOM_DB": ":memory:",
        }
        command = [sys.executable, "-c", ACTIVATE, str(listening.fileno()), *GREENROOM, "serve", *mode]
        received: list[str] = []

        def receive_until(message: str) -> None:
            deadline = time.monotonic() + 120
            while message not in received:
                assert time.monotonic() < deadline, received
                received.extend(receiver.recv(4096).decode().split("\n"))

        with bounded(subprocess.Popen(command, env=environment, pass_fds=(listening.fileno(),))) as process:
            receive_until("READY=1")
            assert f"STATUS=Serving on {address}" in received
            if mode:
                receive_until("WATCHDOG=1")
            assert httpx2.get(f"{address}/readyz", timeout=120).status_code == 200
            process.send_signal(signal.SIGTERM)
            receive_until("STOPPING=1")
            assert process.wait(120) == 0


def test_what_is_no_socket_is_refused_in_one_line() -> None:
    code = "import os, sys; os.environ['LISTEN_PID'] = str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *GREENROOM, "serve"],
        env={**os.environ, "LISTEN_FDS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert done.stderr == "greenroom: descriptor 3 (LISTEN_FDS) is no listening TCP or Unix socket\n"
