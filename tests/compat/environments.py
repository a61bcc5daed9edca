"""Environments of clients, one folder each, made once: virtual ones of Python, or packages of node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from greenroom.tests.compat.client_table import Client

ROOT = Path(__file__).resolve().parents[2]
PYTEST = "pytest==9.2.0"


def command_of(client: Client, suites: Path, report: Path, select: str = "") -> list[str]:
    """Return the command that runs a client's tests in its environment, which is rebuilt if packages change.

    Args:
        suites: Folder of the test files.
        report: Path of the JUnit XML report.
        select: Only tests whose names match; all if empty.

    Raises:
        subprocess.CalledProcessError: Installing a package failed; the installer has printed the reason.
    """
    if client.runs_on_node:
        suite = _node_environment(client, client.packages, "--ignore-scripts") / client.file
        suite.write_bytes((suites / client.file).read_bytes())  # node looks for packages beside the file
        reports = ["--test-reporter=junit", f"--test-reporter-destination={report}"]
        chosen = [f"--test-name-pattern={select}"] if select else []
        return ["node", "--test", *reports, *chosen, str(suite)]
    options = ["-q", "-c", str(suites / "pytest.ini"), f"--confcutdir={suites}", f"--junitxml={report}"]
    options += ["-k", select] if select else []
    return [str(_python_environment(client)), "-m", "pytest", *options, str(suites / client.file)]


def search_path(client: Client, path: str) -> str:
    """Return a PATH with the programs of a client's environment before others; it is made if needed."""
    folders = []
    kept = ("--ignore-scripts",) if client.servers else ()
    if client.node_packages:
        # A client's scripts fetch the program for this machine.
        folders.append(str(_node_environment(client, client.node_packages, *kept) / "node_modules" / ".bin"))
    if client.packages and not client.runs_on_node:
        folders.append(str(_python_environment(client).parent))
    return os.pathsep.join([*folders, path])


def _python_environment(client: Client) -> Path:
    """Return the Python of a client's virtual environment."""
    folder = ROOT / f".venv-compat-{client.name}"
    if client.node_packages:
        folder /= "python"
    python, needed = folder / "bin" / "python", (PYTEST, *client.packages)
    if not _has(folder, needed):
        uv = str(Path(sys.executable).with_name("uv"))
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--quiet", "--python", str(python), *needed)
        _note(folder, needed)
    return python


def _node_environment(client: Client, packages: Sequence[str], *options: str) -> Path:
    """Return the folder of a client's packages of node."""
    folder = ROOT / f".venv-compat-{client.name}"
    if client.node_packages:
        folder /= "node"
    if not _has(folder, packages):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True}))
        quiet = ("--silent", "--no-audit", "--no-fund", "--no-package-lock", *options)
        _run("npm", "install", "--prefix", str(folder), *quiet, *packages)
        _note(folder, packages)
    return folder


def _has(folder: Path, packages: Sequence[str]) -> bool:
    noted = folder / "packages.txt"
    return noted.exists() and noted.read_text() == "\n".join(packages)


def _note(folder: Path, packages: Sequence[str]) -> None:
    (folder / "packages.txt").write_text("\n".join(packages))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
