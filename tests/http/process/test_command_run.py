"""Ends of commands that compute in their own process; each case is a separate process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from greenroom.tests.support.servers.bounded_waits import bounded

PROGRAM = """
import os, signal, sys, threading, time
import click, trio
from greenroom.http.process import command_run
from greenroom.http.process.command_run import run_command, run_with_system
from greenroom.http.process.log_configuration import configure_logging
from greenroom.schemas.settings.settings import Settings

configure_logging("console", "error")
command_run.CLOSE_SECONDS = {close}
command_run.FORCED_END_SECONDS = {forced_end}

def ready():
    os.write(1, b"ready")

async def command(*_):
{body}

{run}
"""
FOREVER = "    ready(); await trio.sleep_forever()"
SHIELDED = """
    try:
        ready(); await trio.sleep_forever()
    finally:
        os.write(1, b"again"); time.sleep(600)
"""
HUNG_THREAD = """
    worker = _[0]._workers.lend("gpu", lambda heartbeat: threading.Event().wait(), print)
"""


@contextmanager
def started(
    body: str, run: str = "run_command(command)", forced_end: float = 600, close: float = 600
) -> Iterator[subprocess.Popen[bytes]]:
    program = PROGRAM.format(body=body, run=run, forced_end=forced_end, close=close)
    pipe = subprocess.PIPE
    with bounded(subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe)) as process:
        yield process


def read(process: subprocess.Popen[bytes], word: bytes) -> None:
    assert process.stdout is not None
    assert process.stdout.read(len(word)) == word


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Return the exit status, and the further output on stderr."""
    _, told = process.communicate(timeout=120)
    return process.returncode, told.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_a_command(number: signal.Signals) -> None:
    with started(FOREVER) as process:
        read(process, b"ready")
        process.send_signal(number)
        assert ended(process) == (128 + number, "")


def test_a_second_signal_ends_it_at_once() -> None:
    with started(SHIELDED) as process:
        read(process, b"ready")
        process.send_signal(signal.SIGTERM)
        read(process, b"again")
        process.send_signal(signal.SIGINT)
        assert ended(process) == (128 + signal.SIGTERM, "")


def test_a_main_thread_that_is_stuck_is_ended_too() -> None:
    with started("    ready(); time.sleep(600)", forced_end=0.2) as process:
        read(process, b"ready")
        process.send_signal(signal.SIGINT)
        assert ended(process) == (128 + signal.SIGINT, "")


def test_a_signal_that_was_ignored_before_stays_ignored() -> None:
    run = "signal.signal(signal.SIGHUP, signal.SIG_IGN); run_command(command)"
    with started(FOREVER, run) as process:
        read(process, b"ready")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (128 + signal.SIGTERM, "")


def test_what_is_wrong_is_told_in_a_line() -> None:
    with started("    raise click.UsageError('no  such thing')") as process:
        assert ended(process) == (2, "greenroom: no such thing\n")


@pytest.mark.parametrize("status", [0, 3])
def test_a_thread_that_hangs_leaves_the_status_as_it_is(status: int) -> None:
    run = "run_with_system(Settings(), command)"
    with started(f"{HUNG_THREAD}    return {status}", run, close=0.5) as process:
        code, told = ended(process)
    assert code == status
    assert "worker hangs" in told
    assert "Traceback" not in told


@pytest.mark.parametrize(("status", "ended_with"), [(0, 0), (1, 70)])
def test_a_command_that_fails_for_want_of_a_device_says_so(status: int, ended_with: int) -> None:
    body = f"    _[0].device_lost.set(); return {status}"
    with started(body, "run_with_system(Settings(), command)") as process:
        assert ended(process) == (ended_with, "")
