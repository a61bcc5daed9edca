"""Write the table of notes/licences.md, of all packages that Greenroom runs with: `make licences`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions

from greenroom.tests.support.packages.locked import PYTHONS, ROOT, SYSTEMS, installed_on

NOTE = ROOT / "notes" / "licences.md"

_COPYLEFT = re.compile(r"GPL|MPL|EPL|EUPL|CDDL|OSL|CeCILL|SSPL|BUSL|-SA|Mozilla|GNU|General Public|Eclipse")

_NOT_HERE = {
    "mlx-cpu": "MIT",
    "mlx-metal": "MIT",
    "mlx-cuda-12": "MIT",
    "mlx-cuda-13": "MIT",
    "nvidia": "NVIDIA's own, not open source",
}
"""Licences of packages for other systems than this one, by the beginning of the package's name."""

_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU General Public License v3": "GPL-3.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
}
"""SPDX identifiers (https://spdx.org/licenses) of licences as authors name them."""

_LONGEST_NAME = 60
"""Maximum length of a licence's name in characters. A longer field is the full text and is ignored."""

_TABLE = "| licence | packages |\n|---|---|\n"
"""Head of the generated table; the note's text before it is written by hand."""


def runtime_packages() -> Mapping[str, str]:
    """Return the packages with the extra that needs each; an empty string for those always installed."""
    always = _names("cpu")
    reasons = dict.fromkeys(always, "") | dict.fromkeys(_names("embeddings") - always, "extra `embeddings`")
    for extra in ("cuda12", "cuda13"):
        for name in _names(extra) - reasons.keys():
            reasons[name] = f"extra `{extra}`"
    return dict(sorted(reasons.items()))


def licence_of(name: str) -> str:
    """Return a package's licence from its metadata, or the listed one if it is for another system."""
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return next(licence for start, licence in _NOT_HERE.items() if name.startswith(start))
    if written := metadata.get_all("License-Expression"):
        return str(written[0])
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License")
    ]
    field = "".join(metadata.get_all("License") or ()).strip()
    if field and len(field) <= _LONGEST_NAME:
        return _SPDX.get(field, field)
    named = " OR ".join(_SPDX.get(line, line) for line in classified)
    if not named:
        raise ValueError(f"{name} declares no licence: look for it, and name it in this file")
    return named


def is_copyleft(licence: str) -> bool:
    """Return whether a licence is copyleft, or may be."""
    return _COPYLEFT.search(licence) is not None


def bundled_files() -> Mapping[str, frozenset[str]]:
    """Return the shared libraries bundled in installed wheels, by package."""
    runtime = runtime_packages()
    found = {
        name: frozenset(_libraries(wheel)) for wheel in distributions() if (name := _name(wheel)) in runtime
    }
    return {name: libraries for name, libraries in found.items() if libraries}


def table_rows() -> Mapping[str, tuple[str, str]]:
    """Return the licence and remark of each package in the note."""
    table = NOTE.read_text().partition(_TABLE)[2]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    return {
        name: (licence, remark)
        for licence, packages in rows
        for name, remark in re.findall(r"([\w.-]+)(?: \(([^)]+)\))?(?:, |$)", packages)
    }


def _names(extra: str) -> set[str]:
    return {
        wish.name for system in SYSTEMS for python in PYTHONS for wish in installed_on(system, python, extra)
    }


def _name(wheel: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", str(wheel.metadata["Name"])).lower()


def _libraries(wheel: Distribution) -> set[str]:
    folders = re.compile(r"(?:^|/)(?:[\w.]+\.libs|\.dylibs)/([\w+-]+?)(?:-[0-9a-f]{8})*\.(?:so|\d|dylib)")
    return {match[1] for file in wheel.files or () if (match := folders.search(str(file)))}


def main() -> None:
    """Rewrite the note's table."""
    packages: dict[str, list[str]] = {}
    for name, remark in runtime_packages().items():
        licence = licence_of(name)
        cell = f"**{licence}**" if is_copyleft(licence) else licence
        packages.setdefault(cell, []).append(f"{name} ({remark})" if remark else name)
    rows = [f"| {licence} | {', '.join(names)} |\n" for licence, names in sorted(packages.items())]
    NOTE.write_text(NOTE.read_text().partition(_TABLE)[0] + _TABLE + "".join(rows))


if __name__ == "__main__":
    main()
