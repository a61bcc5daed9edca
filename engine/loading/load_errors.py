"""What may come out of loading a model, as the error that its client gets."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from greenroom.engine.catalog.files.load_failures import named_failures


class LoadAbandonedError(Exception):
    """The load was given up between two chunks of weights, or two pieces of a file."""


def named_load_errors(folder: Path) -> AbstractContextManager[None]:
    """Turn whatever is raised within into a problem with a reason (`named_failures`).

    Raises:
        ProblemError: As raised within; else 503 `load_failed`.
        LoadAbandonedError: As raised within.
    """
    return named_failures(folder, passing=(LoadAbandonedError,))
