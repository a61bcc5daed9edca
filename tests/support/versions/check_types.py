"""Type checks for each version of Python with its locked packages, and for macOS: `make types`.

For each version of Python, the lock may have other versions of packages, with other stubs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]


def other_packages(python: str, root: Path = ROOT) -> dict[str, str]:
    """Return the direct dependencies whose locked version for a Python differs from the installed one.

    Args:
        python: Version of Python, such as "3.12".
    """
    project = tomllib.loads((root / "pyproject.toml").read_text())
    direct = set(_required_names(project))
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = {}
    for package in tomllib.loads((root / "uv.lock").read_text())["package"]:
        name, markers = package["name"], package.get("resolution-markers")
        if name not in direct or markers is None:
            continue
        if any(Marker(marker).evaluate(environment) for marker in markers):
            found[name] = package["version"]
    return {name: version for name, version in found.items() if version != installed_version(name)}


def check_types(
    python: str, packages: Path | None, platform: str = sys.platform
) -> subprocess.CompletedProcess[str]:
    """Run mypy for a version of Python.

    Args:
        packages: Folder of packages that take precedence over this environment's.
        platform: Platform as in `sys.platform`; using another platform's standard library is an error.
    """
    environment = dict(os.environ) | ({"PYTHONPATH": str(packages)} if packages else {})
    command = [sys.executable, "-m", "mypy", "--python-version", python, "--platform", platform]
    # In one process: several of mypy's give each other up on a busy machine, and compute more together.
    command += ["--cache-dir", f".mypy_cache/{platform}"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def main(asked: list[str]) -> int:
    """Check each version; with `darwin`, the last as on macOS. Return the exit status."""
    versions = [each for each in asked if each != "darwin"]
    if not versions:
        print(
            "No version of Python to check: TYPED names them, as in `make types TYPED=3.11`.", file=sys.stderr
        )
        return 2
    packages = {version: other_packages(version) for version in versions}
    folders = {version: _install(others, version) for version, others in packages.items()}
    checks = [(version, sys.platform) for version in versions]
    if "darwin" in asked:
        checks[-1] = (versions[-1], "darwin")
    status = 0
    for version, system in checks:
        done = check_types(version, folders[version], system)
        print(f"Python {version}, {system}: {done.stdout}{done.stderr}".rstrip(), flush=True)
        status = status or done.returncode
    return status


def _required_names(project: Mapping[str, Any]) -> Iterator[str]:
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    for names in (project["project"]["dependencies"], *extras, *groups):
        yield from (canonicalize_name(Requirement(name).name) for name in names)


def _install(packages: Mapping[str, str], python: str) -> Path | None:
    """Install packages into a folder named after them, unless it exists; return the folder."""
    if not packages:
        return None
    pins = [f"{name}=={version}" for name, version in sorted(packages.items())]
    home = Path(sys.prefix) / "types" / "+".join(pins)
    if not (home / "complete").exists():
        uv = Path(sys.executable).with_name("uv")
        options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python]
        subprocess.run([uv, "pip", "install", *options, "--target", home, *pins], check=True)
        (home / "complete").touch()
    return home


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
