"""Signs of life of a process, with a real event loop and real pipes."""

from __future__ import annotations

import os
import queue
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from greenroom.actors.core.worker_thread import Activity
from greenroom.http.supervision.heartbeat import Beat, Systemd, parse_beat
from greenroom.http.supervision.heartbeats import Heartbeats, ParentPipe

INTERVAL = 0.02


def test_a_process_without_watchers_starts_no_thread() -> None:
    before = threading.active_count()
    Heartbeats(INTERVAL, ())
    assert threading.active_count() == before


async def test_beats_come_while_the_loop_answers_and_stop_while_it_is_blocked() -> None:
    beats: queue.SimpleQueue[Beat] = queue.SimpleQueue()
    heartbeats = Heartbeats(INTERVAL, [beats.put])
    heartbeats.follow(trio.lowlevel.current_trio_token())
    heartbeats.enter("serving")
    for _ in range(5):
        assert await trio.to_thread.run_sync(beats.get, True, 60) == Beat("serving")
    blocked_until = time.monotonic() + 20 * INTERVAL
    while not beats.empty():
        beats.get(timeout=60)
    while time.monotonic() < blocked_until:
        pass  # the loop answers nobody
    assert beats.qsize() <= 1, "one answer was on its way"
    with trio.fail_after(300):
        assert await trio.to_thread.run_sync(beats.get, True, 60) == Beat("serving")
    # Leave a loop that goes on, as a real process has until its end.


def test_beats_go_on_after_the_loop_has_ended() -> None:
    beats: queue.SimpleQueue[Beat] = queue.SimpleQueue()
    heartbeats = Heartbeats(INTERVAL, [beats.put])

    async def run() -> None:
        heartbeats.follow(trio.lowlevel.current_trio_token())

    trio.run(run)
    heartbeats.enter("ending")
    for _ in range(5):
        assert beats.get(timeout=60).stage in ("starting", "ending")


def test_work_is_told_before_it_begins() -> None:
    told: list[tuple[bool, tuple[str, ...]]] = []
    activity = Activity(lambda: told.append((activity.importing, activity.models)))
    activity.set_busy("thread 1", "one", True)
    activity.set_busy("thread 1", "one", True)
    activity.set_importing(True)
    activity.set_busy("thread 2", "two", True)
    activity.set_busy("thread 3", "one", True)
    activity.set_busy("thread 1", "one", False)
    activity.set_importing(False)
    activity.set_busy("store", "", True)
    assert told == [
        (False, ("one",)),
        (True, ("one",)),
        (True, ("one", "two")),
        (True, ("one", "two")),
        (True, ("two", "one")),
        (False, ("two", "one")),
    ]


def test_a_parent_that_does_not_read_never_blocks_a_child() -> None:
    read, write = os.pipe()
    pipe = ParentPipe(write)
    for _ in range(10_000):
        pipe.send(Beat("serving"))
    lines = os.read(read, 1 << 20).splitlines()
    assert len(lines) > 100
    assert {parse_beat(line) for line in lines} == {Beat("serving")}
    assert not select.select([read], [], [], 0)[0]
    pipe.send(Beat("ending"))
    assert parse_beat(os.read(read, 4096)) == Beat("ending")


@pytest.mark.parametrize("models", [("org/name",), ("ä" * 250, "b" * 250)])
def test_names_arrive_as_they_are(models: tuple[str, ...]) -> None:
    assert parse_beat(Beat("serving", busy=models).to_line()) == Beat("serving", busy=models)


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
