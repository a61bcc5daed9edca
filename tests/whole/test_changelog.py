"""Versions in the changelog, the list of all changes and the package are the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def versions_of(page: Path) -> list[str]:
    """Return the version headings of a page, with their titles."""
    return re.findall(r"^## (\d+\.\d+\.\d+.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_both_pages_name_the_versions_that_there_are() -> None:
    versions = versions_of(ROOT / "CHANGELOG.md")
    assert versions == versions_of(ROOT / "notes" / "changes.md")
    numbers = [version.split()[0] for version in versions]
    newest_first = sorted(numbers, key=lambda number: [int(part) for part in number.split(".")], reverse=True)
    assert numbers == newest_first
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert numbers[0] == project["version"]


def test_a_version_is_released_or_says_that_it_is_not() -> None:
    for version in versions_of(ROOT / "CHANGELOG.md"):
        assert re.fullmatch(r"[\d.]+ \((not released|\d{4}-\d\d-\d\d)\)", version), version
