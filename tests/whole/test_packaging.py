"""The wheel, installed where the repository is not, holds everything and answers."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
ROOMS = ("actors", "engine", "http", "schemas")


def run(*command: str | Path, cwd: Path, text: str | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT, cwd=folder)
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
    locked = tmp_path / "locked.txt"
    export = (UV, "export", "--quiet", "--locked", "--no-emit-project", "--no-dev", "--extra", "cpu")
    locked.write_text(run(*export, "--no-hashes", "--project", ROOT, cwd=tmp_path))
    run(UV, "venv", "--quiet", "--python", sys.executable, "elsewhere", cwd=tmp_path)
    python = tmp_path / "elsewhere" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "-r", locked, cwd=tmp_path)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel, cwd=tmp_path)

    answer = run(python.parent / "greenroom", "chat", cwd=tmp_path, text="Hello")

    assert "demo" in answer
