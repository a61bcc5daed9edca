"""MLX as `pip install greenroom` installs it on Linux: without a library that comes with another package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core
import pytest

from greenroom.engine.loading import devices

_WITH_THAT_MLX = """
import sys
from importlib.machinery import PathFinder

folder = sys.argv.pop(1)

class OnlyThere:
    def find_spec(self, name, path=None, target=None):
        return PathFinder.find_spec(name, [folder]) if name == "mlx" else None

sys.meta_path.insert(0, OnlyThere())
from greenroom.http.command_line import main
main()
"""


def test_here_something_can_be_computed_with() -> None:
    assert devices.can_compute()


@pytest.mark.parametrize("command", [("serve", "--port", "0", "--log-level", "error"), ("chat",)])
def test_a_command_says_what_to_install(tmp_path: Path, command: tuple[str, ...]) -> None:
    installed = Path(str(mlx.core.__file__)).parent
    shutil.copytree(installed, tmp_path / "mlx", ignore=shutil.ignore_patterns("lib", "include", "share"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}  # for a process that it asks
    program = [sys.executable, "-c", _WITH_THAT_MLX, str(tmp_path), *command]
    refused = subprocess.run(program, capture_output=True, text=True, env=environment, input="", timeout=600)
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert "MLX has no backend on this machine: install Greenroom with [cpu]" in line
