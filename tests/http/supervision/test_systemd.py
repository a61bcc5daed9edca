"""Messages to systemd, over a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from greenroom.http.supervision.beat import Beat
from greenroom.http.supervision.heartbeats import Systemd


@pytest.fixture(params=["path", "abstract"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Yield the value of NOTIFY_SOCKET, and the socket behind it."""
    if request.param == "abstract" and not os.path.exists("/proc/net/unix"):
        pytest.skip("only Linux has abstract names")
    name = f"@greenroom-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(name.replace("@", "\0") if name.startswith("@") else name)
        sock.settimeout(10)
        yield name, sock


def test_messages_arrive_in_one_datagram_and_no_child_inherits_the_socket(
    receiver: tuple[str, socket.socket],
) -> None:
    name, sock = receiver
    environment = {"NOTIFY_SOCKET": name, "HOME": "/"}
    systemd = Systemd(environment)
    assert environment == {"HOME": "/"}
    systemd.tell("READY=1", "STATUS=Serving\nREADY=0")
    assert sock.recv(4096) == b"READY=1\nSTATUS=Serving READY=0"


def test_signs_of_life_extend_the_limit_while_a_library_is_imported(
    receiver: tuple[str, socket.socket],
) -> None:
    name, sock = receiver
    systemd = Systemd({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "15000000", "WATCHDOG_PID": str(os.getpid())})
    assert systemd.watchdog_seconds == 15.0
    for beat in (
        Beat("serving"),
        Beat("serving", importing=True),
        Beat("serving", importing=True),
        Beat("serving"),
    ):
        systemd.send(beat)
    assert [sock.recv(4096) for _ in range(4)] == [
        b"WATCHDOG=1",
        b"WATCHDOG_USEC=60000000\nWATCHDOG=1",
        b"WATCHDOG=1",
        b"WATCHDOG_USEC=15000000\nWATCHDOG=1",
    ]


@pytest.mark.parametrize(
    "variables", [{}, {"WATCHDOG_USEC": "1000"}, {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "x"}]
)
def test_without_a_watchdog_nothing_is_watched(variables: dict[str, str]) -> None:
    assert Systemd(dict(variables)).watchdog_seconds is None


def test_a_watchdog_of_another_process_is_not_ours(receiver: tuple[str, socket.socket]) -> None:
    name, _ = receiver
    systemd = Systemd({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    assert systemd.watchdog_seconds is None


def test_a_socket_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")
