"""Build backend: setuptools' own, which would ship deleted modules that an earlier build left in build/."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = (
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
)


def build_wheel(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build a wheel, and leave no copy of the modules behind (PEP 517; the folder is the project's)."""
    _clean()
    try:
        return build_meta.build_wheel(folder, settings, metadata)
    finally:
        _clean()


def _clean() -> None:
    for left in (*Path("build").glob("lib*"), *Path("build").glob("bdist.*")):
        shutil.rmtree(left)
    if Path("build").is_dir() and not any(Path("build").iterdir()):
        Path("build").rmdir()
