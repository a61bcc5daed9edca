"""Errors of model loading, as clients receive them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from greenroom.engine.catalog.files.load_failures import named_failures


class LoadAbandonedError(Exception):
    """Error if the load was abandoned between two chunks of weights or two pieces of a file."""


def named_load_errors(folder: Path) -> AbstractContextManager[None]:
    """Convert any exception within into a problem with a reason (`named_failures`).

    Raises:
        ProblemError: The same error if raised within; else 503 `load_failed`.
        LoadAbandonedError: The same error if raised within.
    """
    return named_failures(folder, passing=(LoadAbandonedError,))
