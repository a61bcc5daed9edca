"""The wheel, installed where the repository is not, holds everything and answers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from greenroom.tests.support.surroundings import CALLERS_ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
ROOMS = ("actors", "engine", "http", "schemas")


def uv(*arguments: str | Path, cwd: Path, **variables: str) -> None:
    environment = {**CALLERS_ENVIRONMENT, **variables}
    done = subprocess.run(
        [UV, *arguments, "--quiet"], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "--out-dir", folder, ROOT, cwd=folder)
    return next(folder.glob("*.whl"))


def test_every_folder_with_code_is_a_listed_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    assert {".".join(("greenroom", *folder.parts)) for folder in folders} == listed


def test_the_wheel_holds_every_module_and_the_demo_model(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    expected = {f"greenroom/{path}" for path in modules}
    demo = {f"greenroom/engine/demo/model/{path.name}" for path in (ROOT / "engine/demo/model").iterdir()}
    assert "greenroom/engine/demo/model/model.safetensors" in demo
    assert expected | demo | {f"greenroom/{room}/py.typed" for room in ROOMS} <= inside


def test_an_installed_wheel_chats_with_its_demo_model(wheel: Path, tmp_path: Path) -> None:
    # From the lock alone, without asking an index: the wheels are those that the tests themselves run with.
    locked = ("--frozen", "--no-dev", "--no-install-project", "--extra", "cpu", "--python", sys.executable)
    folder = tmp_path / "elsewhere"
    uv("sync", *locked, "--project", ROOT, cwd=tmp_path, UV_PROJECT_ENVIRONMENT=str(folder))
    into = ("--python", folder / "bin" / "python", "--no-deps", "--no-index")
    uv("pip", "install", *into, wheel, cwd=tmp_path)

    command = [str(folder / "bin" / "greenroom"), "chat"]
    done = subprocess.run(command, cwd=tmp_path, input="Hello", capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
