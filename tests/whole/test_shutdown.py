"""Signals end a process within its shutdown timeout, whatever hangs; each case is a separate process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from greenroom.http.process.shutdown import forced_end
from greenroom.tests.support.servers.bounded_waits import bounded

PROGRAM = """
import os, re, sys, time, trio
from greenroom.http.process.shutdown import Shutdown
shutdown = Shutdown({shutdown_timeout})

async def main():
    drain = trio.Event()
    shutdown.set_on_signal(drain)
    os.write(1, b"ready")
    {body}

{run}
"""


class Started:
    """A started process that has installed its signal handlers."""

    def __init__(self, body: str, shutdown_timeout: float, run: str = "trio.run(main)") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=body, shutdown_timeout=shutdown_timeout, run=run)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.read(5) == b"ready"

    def signal(self, number: signal.Signals) -> None:
        self.began = time.monotonic()
        self.process.send_signal(number)

    def end(self) -> tuple[int, float]:
        """Return the exit status, and the seconds since the last signal; no case ends that soon by itself."""
        with bounded(self.process):
            status = self.process.wait(120)
            return status, time.monotonic() - self.began


def check_forced_end(started: Started, earliest: float) -> None:
    started.signal(signal.SIGTERM)
    status, seconds = started.end()
    assert seconds > earliest
    assert status == 75


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(number: signal.Signals) -> None:
    started = Started("await drain.wait()", shutdown_timeout=600)
    started.signal(number)
    assert started.end()[0] == 0


def test_a_signal_before_trio_runs_is_not_lost() -> None:
    run = "os.write(1, b'ready')\nwhile not shutdown.has_begun: time.sleep(0.01)\ntrio.run(main)"
    started = Started("await drain.wait()", 600, run)
    started.signal(signal.SIGTERM)
    assert started.end()[0] == 0


@pytest.mark.parametrize(
    "body",
    [
        "await trio.sleep_forever()",
        "time.sleep(600)",
        "while True: pass",
        "import threading; threading.Thread(target=time.sleep, args=(600,)).start()",
        # stderr is a full pipe that is never read.
        "r, w = os.pipe(); os.set_blocking(w, False); os.write(w, b'x' * 65536); os.set_blocking(w, True); "
        "os.dup2(w, 2); await trio.sleep_forever()",
    ],
    ids=["trio", "system call", "python", "thread", "log"],
)
def test_whatever_hangs_the_process_ends_within_the_timeout(body: str) -> None:
    check_forced_end(Started(body, shutdown_timeout=1.5), 0.75)


@pytest.mark.parametrize("timeout", [0.5, 1.0, 2.0, 5.0, 30.0])
def test_the_process_is_not_ended_while_what_is_left_is_still_told(timeout: float) -> None:
    told = timeout - min(5.0, timeout / 4) / 2
    assert told < forced_end(timeout) < timeout


def test_a_signal_after_trio_has_ended_does_not_cut_threads_short() -> None:
    body = "import threading; threading.Thread(target=time.sleep, args=(600,)).start()"
    started = Started(body, 1.0, "trio.run(main); os.write(1, b'ended')")
    assert started.process.stdout is not None
    assert started.process.stdout.read(5) == b"ended"
    check_forced_end(started, 0.5)


def test_code_that_never_gives_up_the_interpreter_is_ended_too() -> None:
    started = Started("re.match('(a+)+b', 'a' * 64)", shutdown_timeout=0.5)
    started.signal(signal.SIGTERM)
    status, seconds = started.end()
    assert status == 75
    assert seconds > 0.25


def test_an_end_without_a_signal_is_forced_with_its_own_status() -> None:
    body = "shutdown.end_within(0.5, 70); os.write(1, b'again'); await trio.sleep_forever()"
    started = Started(body, shutdown_timeout=600)
    assert started.process.stdout is not None
    assert started.process.stdout.read(5) == b"again"
    started.signal(signal.SIGTERM)  # has no effect
    assert started.end()[0] == 70


def test_without_the_systems_timers_the_interpreters_own_ends_the_process() -> None:
    body = (
        "import greenroom.http.process.shutdown as module; module.exit_natively_later = lambda *_: False; "
        "shutdown.end_within(0.1, 70); re.match('(a+)+b', 'a' * 64)"
    )
    with bounded(Started(body, shutdown_timeout=600).process) as process:
        assert process.wait(120) == 1


def test_a_second_interrupt_ends_it_at_once() -> None:
    started = Started(
        "await drain.wait(); os.write(1, b'again'); await trio.sleep_forever()", shutdown_timeout=600
    )
    started.signal(signal.SIGINT)
    assert started.process.stdout is not None
    assert started.process.stdout.read(5) == b"again"
    started.signal(signal.SIGINT)
    assert started.end()[0] == 130


def test_a_second_termination_does_not_cut_the_drain_short() -> None:
    started = Started(
        "await drain.wait(); os.write(1, b'again'); await trio.sleep(0.3); os.write(1, b'done!')",
        shutdown_timeout=600,
    )
    started.signal(signal.SIGTERM)
    assert started.process.stdout is not None
    assert started.process.stdout.read(5) == b"again"
    started.signal(signal.SIGTERM)
    assert started.process.stdout.read(5) == b"done!"
    assert started.end()[0] == 0
