"""Commands in separate processes whose model thread never returns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from greenroom.tests.support.servers.bounded_waits import bounded

HANGS = "its thread hangs"

_PROGRAM = f"""
import os, sys, threading
from greenroom.actors import system
from greenroom.actors.engines.engines import Engines
from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.http.command_line import main
from greenroom.http.process import command_run

where, hang_timeout, *arguments = sys.argv[1:]
import_text_libraries()  # may take longer than a thread may be silent here
command_run.CLOSE_SECONDS = 0.5
if float(hang_timeout):
    system.open_system.__wrapped__.__kwdefaults__["hang_timeout"] = float(hang_timeout)

def hang(*_, **__):
    import mlx.core as mx
    mx.eval(mx.arange(3) + 1)
    os.write(2, b"{HANGS}\\n")
    threading.Event().wait()

load_engine = Engines.load_engine

def load(*arguments):
    engine = hang() if where == "load" else load_engine(*arguments)
    engine.step = hang
    return engine

Engines.load_engine = load
sys.argv[:] = ["greenroom", *arguments]
main()
"""


def hung_command(where: Literal["load", "step"], *arguments: str, hang_timeout: float = 0) -> list[str]:
    """Return the command line of a command whose model hangs on load, or in its first step.

    Args:
        hang_timeout: Hang timeout in seconds; 0 keeps the default.
    """
    return [sys.executable, "-c", _PROGRAM, where, str(hang_timeout), *arguments]


@contextmanager
def hanging(
    where: Literal["load", "step"], *arguments: str, stdin: str = ""
) -> Iterator[subprocess.Popen[str]]:
    """Start such a command, and wait until its model hangs."""
    pipe = subprocess.PIPE
    command = hung_command(where, *arguments)
    with bounded(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.close()
        process.stdin = None
        while (line := process.stderr.readline()) != f"{HANGS}\n":
            assert line, "it has ended"
        yield process
