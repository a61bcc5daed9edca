"""Decoder processes that do not end before a test lets them."""

from __future__ import annotations

import os
from pathlib import Path

from greenroom.engine.media import limited_process


def endless_decoder(folder: Path) -> Path:
    """Return the program of a decoder that works for ever."""
    program = folder / "endless.py"
    program.write_text("import signal\nsignal.pause()\n")
    return program


def held_launcher(folder: Path) -> tuple[Path, Path]:
    """Return a program that launches a decoder once its pipe has been opened, and that pipe."""
    program, pipe, launcher = folder / "held.py", folder / "pipe", limited_process.__file__
    os.mkfifo(pipe)
    run = f"sys.argv[0] = {launcher!r}\nrunpy.run_path({launcher!r}, run_name='__main__')\n"
    program.write_text(f"import runpy, sys\nopen({str(pipe)!r}).close()\n{run}")
    return program, pipe
