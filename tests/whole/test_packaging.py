"""The wheel is complete, and works when installed away from the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from greenroom.tests.support.packages.locked import ROOT, UV, exported
from greenroom.tests.support.surroundings import CALLERS_ENVIRONMENT

ROOMS = ("actors", "engine", "http", "schemas")
MODULES = ("__main__.py", "api.py", "asyncio_bridge.py", "testing.py")
"""The modules beside the rooms."""


def uv(*arguments: str | Path, cwd: Path, **variables: str) -> None:
    environment = {**CALLERS_ENVIRONMENT, **variables}
    done = subprocess.run(
        [UV, *arguments, "--quiet"], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # Build from a copy: setuptools writes into the source folder, which other tests may be reading.
    source = folder / "source"
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*MODULES, "py.typed", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / ".ci", source / ".ci")
    deleted = source / "build" / "lib" / "greenroom" / "deleted.py"  # as an earlier build leaves it
    deleted.parent.mkdir(parents=True)
    deleted.touch()
    uv(
        "build",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--wheel",
        "--out-dir",
        folder,
        source,
        cwd=folder,
    )
    return next(folder.glob("*.whl"))


def test_versions_of_python_are_named_from_the_oldest_that_is_required() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [name.split(" :: ")[-1] for name in project["classifiers"] if " :: Python :: 3." in name]
    oldest = int(project["requires-python"].removeprefix(">=3."))
    assert named == [f"3.{minor}" for minor in range(oldest, oldest + len(named))]
    line = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if line.startswith("VERSIONS := ")
    )
    assert set(named) <= set(line.split())
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in line


def test_every_folder_with_code_is_a_listed_package() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    rooms = {f"greenroom.{room}" for room in ROOMS}  # each room has a py.typed
    assert {"greenroom", *rooms, *(".".join(("greenroom", *folder.parts)) for folder in folders)} == listed


def test_the_wheel_holds_every_module_the_demo_model_and_the_pages(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = [path.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    expected = {f"greenroom/{path}" for path in modules}
    demo = {f"greenroom/engine/demo/model/{path.name}" for path in (ROOT / "engine/demo/model").iterdir()}
    assert "greenroom/engine/demo/model/model.safetensors" in demo
    typed = {f"greenroom/{folder}py.typed" for folder in ("", *(f"{room}/" for room in ROOMS))}
    table = {"greenroom/engine/loading/batching_table.json"}
    folders = (ROOT / "http" / "pages" / name for name in ("site", "compressed"))
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    pages = {f"greenroom/{path.relative_to(ROOT)}" for path in files}
    assert "greenroom/http/pages/compressed/index.html.gz" in pages
    in_package = {name for name in inside if name.startswith("greenroom/")}
    # All that stands here, and no module of an earlier build.
    assert expected | demo | typed | table | pages | {f"greenroom/{name}" for name in MODULES} == in_package


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the executables of an environment with the wheel, away from the repository."""
    home = tmp_path_factory.mktemp("installed")
    folder = home / "elsewhere"
    uv("venv", "--python", sys.executable, folder, cwd=home)
    (packages,) = folder.glob("lib/*/site-packages")
    # The locked packages that the tests run with, compiled already, and none of a developer's own.
    link([each.name for each in exported("cpu") if each.marker is None or each.marker.evaluate()], packages)
    into = ("--python", folder / "bin" / "python", "--no-deps", "--no-index")
    uv("pip", "install", *into, wheel, cwd=home)
    return folder / "bin"


def link(names: Iterable[str], folder: Path) -> None:
    """Link the files of packages of this environment into a folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        package = metadata.distribution(name)
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(package.locate_file(top))))


@pytest.mark.deep
@pytest.mark.parametrize("command", [["greenroom"], ["python", "-m", "greenroom"]])
def test_an_installed_wheel_chats_with_its_demo_model(
    installed: Path, tmp_path: Path, command: list[str]
) -> None:
    program = [str(installed / command[0]), *command[1:], "chat"]
    done = subprocess.run(program, cwd=tmp_path, input="Hello", capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout


@pytest.mark.deep
def test_another_project_tests_with_scripted_models_as_the_page_shows(
    installed: Path, tmp_path: Path
) -> None:
    page = (ROOT / "notes" / "embed.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert files.keys() == {"conftest.py", "test_own.py"}
    project = tmp_path / "project"
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text)
    (project / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    link(("pytest", "pluggy", "iniconfig", "pytest_trio"), tmp_path / "tools")  # what is a developer's own
    program = [str(installed / "python"), "-m", "pytest", "-q"]
    environment = {**CALLERS_ENVIRONMENT, "PYTHONPATH": str(tmp_path / "tools")}
    done = subprocess.run(program, cwd=project, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
