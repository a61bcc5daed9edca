"""Examine the versions of the libraries, against those with which Greenroom was tested."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from greenroom.http.doctor.finding import Finding

_TOLD = ("mlx", "mlx-lm", "mlx-vlm", "mlx-audio", "transformers", "tokenizers", "huggingface-hub", "trio")
"""Libraries whose versions every report tells."""


def check_libraries() -> Iterator[Finding]:
    """Yield the versions of the main libraries, and each library that is missing or of an untested
    version."""
    asked = [Requirement(line) for line in requires("greenroom") or ()]
    found = {each.name: _version(each.name) for each in asked}
    yield Finding("libraries", ", ".join(f"{name} {found[name]}" for name in _TOLD if found.get(name)))
    yield from check_versions(asked, found)


def check_versions(asked: list[Requirement], found: dict[str, str | None]) -> Iterator[Finding]:
    """Yield the requirements that installed versions do not meet; those of extras, only if installed.

    Args:
        found: Installed versions by name; None for a library that is not installed.
    """
    for each in asked:
        optional = each.marker is not None and not each.marker.evaluate({"extra": ""})
        installed = found[each.name]
        if installed is None:
            if not optional:
                yield Finding("library", f"{each.name} is missing: install Greenroom again", wrong=True)
        elif not optional and not each.specifier.contains(installed, prereleases=True):
            told = f"{each.name} {installed} was not tested: install {each.name}{each.specifier}"
            yield Finding("library", told, wrong=True)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
