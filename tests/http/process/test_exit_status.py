"""The name under which a user can call the program again."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.http.process.exit_status import program_name


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / ".venv" / "bin" / "greenroom"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(program), "serve"])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return program


def test_a_program_on_no_path_is_called_by_where_it_lies(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program_name() == ".venv/bin/greenroom"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program_name() == str(installed)


def test_a_program_on_the_path_is_called_by_its_name(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "bin" / "greenroom"
    link.parent.mkdir()
    link.symlink_to(installed)
    monkeypatch.setenv("PATH", f"{link.parent}:/usr/bin")
    assert program_name() == "greenroom"


def test_another_program_of_that_name_is_not_meant(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "bin" / "greenroom"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    assert program_name() == ".venv/bin/greenroom"


def test_a_test_or_a_library_that_runs_it_says_greenroom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pytest"])
    assert program_name() == "greenroom"
