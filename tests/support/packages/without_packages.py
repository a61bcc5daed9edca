"""Running code in a process that cannot import some packages, as if they were not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[3] / ".src"
_HIDE = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def run_without(packages: Iterable[str], program: str, *arguments: str) -> str:
    """Run a program; return its output, or fail the test if it ends with an error.

    Args:
        packages: Top-level modules that cannot be imported.
        arguments: `sys.argv[1:]` of the program.
    """
    command = [sys.executable, "-c", _HIDE.format(names=set(packages)) + program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(_SOURCE)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout
