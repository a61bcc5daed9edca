"""Type checks use the packages that the lock has for a version of Python."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from greenroom.tests.support.versions.check_types import ROOT, check_types, main, other_packages

PROJECT = """
[project]
dependencies = ["av>=18", "trio"]
[project.optional-dependencies]
[dependency-groups]
dev = ["numpy"]
"""


def locked(name: str, version: str, marker: str) -> str:
    return f'[[package]]\nname = "{name}"\nversion = "{version}"\nresolution-markers = ["{marker}"]\n'


def test_packages_that_the_lock_has_in_another_version_are_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    lock = locked("av", version("av"), "python_full_version < '3.12'")
    lock += locked("av", "1000.0", "python_full_version >= '3.12'")
    lock += locked("numpy", version("numpy"), "python_full_version >= '3.11'")
    lock += locked("scipy", "1000.0", "python_full_version >= '3.11'")
    lock += '[[package]]\nname = "trio"\nversion = "1000.0"\n'
    (tmp_path / "uv.lock").write_text(lock)
    assert other_packages("3.11", tmp_path) == {}
    assert other_packages("3.14", tmp_path) == {"av": "1000.0"}


def test_the_lock_has_what_is_installed_for_the_version_that_runs() -> None:
    assert other_packages(f"{sys.version_info.major}.{sys.version_info.minor}", ROOT) == {}


def test_types_are_checked_as_under_the_version_that_is_asked_for() -> None:
    done = check_types("3.1", None)
    assert done.returncode
    assert "3.1 is not supported" in done.stdout + done.stderr


def test_no_version_is_a_mistake_that_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "TYPED=3.11" in capsys.readouterr().err
