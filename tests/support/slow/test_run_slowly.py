"""Processes run with `run_slowly` are slowed down as requested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from greenroom.tests.support.slow import run_slowly

SCALED = """
import os, time
from greenroom.tests.support.slow.scaled_clocks import VARIABLE, scale_clocks
real = time.perf_counter
scale_clocks(float(os.environ[VARIABLE]))
before, seen, after = real(), time.perf_counter(), real()
assert 5 * before <= seen <= 5 * after
raise SystemExit(3)
"""
BUSY = """
import os, signal, time
signal.signal(signal.SIGCONT, lambda *_: time.process_time() > 0.2 and os._exit(0))
began = time.monotonic()
while time.monotonic() < began + 5: pass
os._exit(time.process_time() > 2.5)
"""
"""Source of a program that fails if it has had half a core for long and was never stopped."""


def test_a_command_has_other_clocks_neighbours_and_part_of_a_core_and_its_status_is_told() -> None:
    slowly = [sys.executable, "-m", run_slowly.__name__, "--costs", "5", "--cores", "0.5", "--busy", "1"]
    command = [*slowly, "--", sys.executable, "-c", SCALED]
    source = str(Path(__file__).resolve().parents[3] / ".src")
    environment = {**os.environ, "PYTHONPATH": source}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")


def test_a_process_is_stopped_for_as_long_as_it_has_computed_too_much() -> None:
    began = os.times().elapsed
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    run_slowly._interrupt(process, cores=0.25)
    assert process.wait() == 0
    assert os.times().elapsed - began > 0.5
    assert not psutil.pid_exists(process.pid)
