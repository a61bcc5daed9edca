"""`make` reports in one line why a machine cannot run Greenroom, before it installs anything."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / ".ci" / "check_machine.py"

APPLE_SILICON = {"system": "Darwin", "machine": "arm64", "mac_ver": "14.0"}
LINUX = {"system": "Linux", "machine": "x86_64", "glibc": "glibc 2.35"}

OTHER_MACHINE = """
import os, platform, subprocess, sys, sysconfig
told = {told!r}
platform.system = lambda: told["system"]
platform.machine = lambda: told["machine"]
platform.mac_ver = lambda: (told.get("mac_ver", ""), ("", "", ""), "")
os.confstr = lambda name: told.get("glibc")
if "python" in told:
    sys.version_info = told["python"]
if "musl" in told:
    sysconfig.get_config_var = lambda name: "x86_64-pc-linux-musl"
"""
"""Source of a `sitecustomize` module, which Python runs at startup."""


def fake(folder: Path, told: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a Python process that takes this machine for another one."""
    (folder / "sitecustomize.py").write_text(OTHER_MACHINE.format(told=dict(told)))
    programs = folder / "bin"
    programs.mkdir()
    (programs / "sysctl").write_text(f"#!/bin/sh\necho {told.get('translated', 0)}\n")
    (programs / "sysctl").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return {**inherited, "PYTHONPATH": str(folder), "PATH": path}


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (APPLE_SILICON | {"mac_ver": "13.7"}, r"MLX needs macOS 14 or newer, and this is 13.7: update it"),
        (APPLE_SILICON | {"machine": "x86_64"}, "has an Intel processor: use"),
        (APPLE_SILICON | {"machine": "x86_64", "translated": 1}, "under Rosetta; MLX needs one for Apple"),
        (
            LINUX | {"glibc": "glibc 2.34"},
            "MLX needs glibc 2.35 or newer (Ubuntu 22.04, Debian 12, RHEL 10), and",
        ),
        (LINUX | {"glibc": "glibc 2.9"}, "this system has 2.9"),
        (LINUX | {"glibc": None, "musl": 1}, "this system has musl"),
        (LINUX | {"machine": "riscv64"}, "no build for riscv64"),
        ({"system": "Windows", "machine": "AMD64"}, "use WSL 2"),
        (LINUX | {"python": (3, 9, 6)}, "needs Python 3.11 or newer, and this is 3.9: make PYTHON="),
        (APPLE_SILICON | {"python": (3, 9, 6)}, "needs Python 3.11 or newer, and this is 3.9: make PYTHON="),
    ],
)
def test_a_machine_that_cannot_run_it_is_told_in_one_line(
    tmp_path: Path, told: Mapping[str, object], line: str
) -> None:
    environment = fake(tmp_path, told)
    done = subprocess.run(
        [sys.executable, CHECK], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "told",
    [
        APPLE_SILICON,
        APPLE_SILICON | {"mac_ver": "26.1"},
        APPLE_SILICON | {"mac_ver": "10.16"},  # macOS reports this version to old programs
        LINUX,
        LINUX | {"machine": "aarch64", "glibc": "glibc 2.41"},
        LINUX | {"python": (3, 14, 0)},
    ],
)
def test_others_are_told_nothing(tmp_path: Path, told: Mapping[str, object]) -> None:
    environment = fake(tmp_path, told)
    done = subprocess.run(
        [sys.executable, CHECK], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_python_that_is_too_new_is_a_warning(tmp_path: Path) -> None:
    environment = fake(tmp_path, APPLE_SILICON | {"python": (3, 15, 0)})
    done = subprocess.run(
        [sys.executable, CHECK], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("Warning: Greenroom was not tested with Python 3.15")


@pytest.mark.parametrize("minor", [6, 9, 11])
def test_it_is_written_for_the_python_that_a_mac_brings(minor: int) -> None:
    ast.parse(CHECK.read_text(), feature_version=(3, minor))


def test_make_stops_there_with_2_and_leaves_nothing(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("uv.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "faked").mkdir()
    environment = fake(tmp_path / "faked", APPLE_SILICON | {"mac_ver": "13.7"})
    command = ["make", "--no-print-directory", "run", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    told, makes = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert told.startswith("MLX needs macOS 14")
    assert makes.startswith("make: ***")
    assert not (tmp_path / ".venv").exists()
