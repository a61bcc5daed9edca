"""The command with which a user can call this program again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "greenroom"


def program_name() -> str:
    """Return `greenroom` if the shell finds this program under that name, else the path that started it.

    `make run` starts it from `.venv/bin`, which is not on the PATH.
    """
    started = Path(sys.argv[0])
    found = shutil.which(NAME)
    if started.name != NAME or (found is not None and Path(found).resolve() == started.resolve()):
        return NAME
    path = os.path.relpath(started)
    return path if not path.startswith("..") else str(started.absolute())
