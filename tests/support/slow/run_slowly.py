"""Running tests as on a slow machine: `make test-slow CORES=0.5 BUSY=2 COSTS=5`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from greenroom.tests.support.slow.scaled_clocks import VARIABLE

_CPU_GROUPS = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""Roots of control groups, version 1 and version 2."""
_PERIOD = 0.1


def main() -> int:
    """Run a command under the given conditions; return its exit status."""
    parser = argparse.ArgumentParser(description="Run a command as on a slow machine.")
    parser.add_argument("--cores", type=float, default=0.0, help="Cores that it may use; 0: all.")
    parser.add_argument("--busy", type=int, default=0, help="Processes beside it that compute all the time.")
    parser.add_argument("--costs", type=float, default=1.0, help="Times what it measures of itself.")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    environment = dict(os.environ)
    if asked.costs != 1:
        environment[VARIABLE] = str(asked.costs)
    with ExitStack() as stack:
        for _ in range(asked.busy):
            stack.enter_context(_busy_process())
        command = [word for word in asked.command if word != "--"]
        limited = stack.enter_context(_cpu_group(asked.cores)) if asked.cores else None
        with subprocess.Popen(command, env=environment) as process:
            if limited is not None:
                (limited / "cgroup.procs").write_text(str(process.pid))
            elif asked.cores:
                _interrupt(process, asked.cores)
            try:
                return process.wait()
            except KeyboardInterrupt:
                return process.wait()


@contextmanager
def _busy_process() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _cpu_group(cores: float) -> Iterator[Path | None]:
    """Make a control group limited to `cores` cores; yield None if this process lacks the permission."""
    group: Path | None = None
    for root in _CPU_GROUPS:
        with suppress(OSError):
            group = root / f"greenroom-{os.getpid()}"
            group.mkdir()
            _set_quota(group, cores)
            break
        group = None
    try:
        yield group
    finally:
        if group is not None:
            for _ in range(100):
                with suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(_PERIOD)


def _set_quota(group: Path, cores: float) -> None:
    period = int(_PERIOD * 1e6)
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(str(period))
        (group / "cpu.cfs_quota_us").write_text(str(int(period * cores)))
    elif (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{int(period * cores)} {period}")
    else:
        group.rmdir()
        raise FileNotFoundError(group)


def _interrupt(process: subprocess.Popen[bytes], cores: float) -> None:
    """Pause and resume a process and its children so that they use `cores` cores on average, until it ends.

    Used where there are no control groups, such as on macOS.
    """
    began, spent = os.times().elapsed, _seconds(process.pid)
    while process.poll() is None:
        time.sleep(_PERIOD / 10)
        owed = (_seconds(process.pid) - spent) / cores - (os.times().elapsed - began)
        if owed > 0:
            family = _family(process.pid)
            _signal(family, signal.SIGSTOP)
            time.sleep(owed)
            _signal(family, signal.SIGCONT)


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _seconds(pid: int) -> float:
    total = 0.0
    for process in _family(pid):
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _signal(family: list[psutil.Process], number: signal.Signals) -> None:
    for process in family:
        with suppress(psutil.Error):
            process.send_signal(number)


if __name__ == "__main__":
    raise SystemExit(main())
