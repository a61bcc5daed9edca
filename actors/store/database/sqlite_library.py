"""Import of sqlite-utils without its optional dependencies: 0.1 s instead of 2 s."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OPTIONAL = ("numpy", "pandas")
"""The optional dependencies of sqlite-utils, for types of values that are never stored here."""


def import_sqlite_utils() -> ModuleType:
    """Import sqlite-utils and return it; imports in other threads are unaffected."""
    finder = _HiddenFromThisThread()
    sys.meta_path.insert(0, finder)
    try:
        import sqlite_utils
    finally:
        sys.meta_path.remove(finder)
    return sqlite_utils


class _HiddenFromThisThread(MetaPathFinder):
    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in OPTIONAL and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(fullname, name=fullname)
        return None
