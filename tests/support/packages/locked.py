"""Packages that the lock installs, and the systems that have wheels of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).resolve().parents[3]
UV = str(Path(sys.executable).parent / "uv")

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MAC, LINUX, LINUX_ARM = "macOS 14 arm64", "Linux x86_64", "Linux arm64"
_SYSTEMS = {
    MAC: {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
    LINUX: {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    LINUX_ARM: {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
}
SYSTEMS = tuple(_SYSTEMS)
_GLIBC = range(35, 4, -1)
"""Minor versions of glibc 2, down from the one that MLX's wheels need."""


@cache
def exported(*extras: str) -> tuple[Requirement, ...]:
    """Return the runtime requirements of the lock with these extras, for all systems."""
    options = [option for extra in extras for option in ("--extra", extra)]
    shape = ("--no-hashes", "--no-annotate", "--no-header", "--no-emit-project")
    command = [UV, "export", "--quiet", "--frozen", "--no-dev", *shape, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(map(Requirement, done.stdout.splitlines()))


def installed_on(system: str, python: str, *extras: str) -> Iterator[Requirement]:
    """Yield the requirements installed on one of `SYSTEMS` for a version of Python."""
    environment = _environment(system, python)
    for requirement in exported(*extras):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


def has_wheel(requirement: Requirement, system: str, python: str) -> bool:
    """Return whether the lock has an installable wheel of a package."""
    return wheel_of(requirement, system, python) is not None


def wheel_of(requirement: Requirement, system: str, python: str) -> Mapping[str, str] | None:
    """Return address and hash of the wheel that an installer prefers; None if there is none."""
    [pinned] = requirement.specifier
    by_tag = {
        tag: wheel
        for wheel in _wheels()[requirement.name, pinned.version]
        for tag in parse_wheel_filename(wheel["url"].rpartition("/")[2])[3]
    }
    return next((by_tag[tag] for tag in _tags(system, python) if tag in by_tag), None)


@cache
def _wheels() -> Mapping[tuple[str, str], Sequence[Mapping[str, str]]]:
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return {(package["name"], package.get("version", "")): package.get("wheels", ()) for package in packages}


@cache
def _tags(system: str, python: str) -> tuple[Tag, ...]:
    """Return the tags of wheels that fit, the best first."""
    version = tuple(map(int, python.split(".")))
    platforms = list(mac_platforms((14, 0), "arm64")) if system == MAC else list(_linux_platforms(system))
    interpreter = f"cp{version[0]}{version[1]}"
    return (*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms))


def _linux_platforms(system: str) -> Iterator[str]:
    machine = _SYSTEMS[system]["platform_machine"]
    for minor in _GLIBC:
        yield f"manylinux_2_{minor}_{machine}"
    yield f"manylinux2014_{machine}"
    yield f"linux_{machine}"


def _environment(system: str, python: str) -> dict[str, str]:
    common = {
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    return common | _SYSTEMS[system]
