"""A rank: a process that holds some of a model's layers, and computes them as rank 0 plans.

Greenroom's own process joins no group of ranks: a group is for the life of a process, and a stopped peer
hangs for ever. Rank 0, a child as well, runs the ordinary text engine. Commands come on standard input;
reports and beats leave on standard output. The end of the input ends the process.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import traceback

from greenroom.engine.loading.libraries import import_text_libraries
from greenroom.engine.ranks.messages import Commands, FrameReader, Reports
from greenroom.schemas.problems import ProblemError
from greenroom.schemas.settings.hosts import THIS_HOST

_LINK_SECONDS = 15  # Time without a sign of life of a parent on another machine
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run one rank until its input ends. What libraries print goes to standard error."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also ends a stopped process
    commands, given, reports = Commands(), os.dup(0), Reports(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    threading.Thread(target=_read_commands, args=(given, commands), daemon=True).start()
    _, start = commands.get()
    threading.Thread(target=reports.beat_forever, daemon=True).start()
    try:
        import_text_libraries()
        from greenroom.engine.ranks.rank import Rank

        Rank(start, commands, reports).run()
    except ProblemError as error:
        reports.put("refused", error.problem)
    except BaseException as error:
        if not str(error).startswith("[ring]"):  # a lost peer, of which the parent tells
            traceback.print_exc()
        reports.put("failed", f"{type(error).__name__}: {error}"[:500])
    os._exit(0)  # without waiting for transfers that never end


def _read_commands(given: int, commands: Commands) -> None:
    """Read commands until the input ends, or has what nobody understands, and end the process.

    A cut link ends no input, so that the long silence of a parent on another machine counts as its end.
    Seconds of waits are counted: while a library holds the interpreter, nobody hears the parent.
    """
    reader, silent, is_far = FrameReader(), 0, False
    try:
        while not is_far or silent < _LINK_SECONDS:
            if not select.select([given], [], [], 1.0)[0]:
                silent += 1
                continue
            silent = 0
            if not (data := os.read(given, 1 << 20)):
                break
            for command in reader.feed(data):
                if command[0] == "start":
                    is_far = command[1].get("host", THIS_HOST.ssh) != THIS_HOST.ssh
                if command != ("alive",):
                    commands.put(command)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
