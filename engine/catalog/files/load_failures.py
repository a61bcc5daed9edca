"""Problems reported for models whose files or code cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from greenroom.engine.catalog.files.missing_packages import library_missing, missing_module
from greenroom.schemas.problems import ProblemError, load_failed

OWN_CODE = (
    "it brings Python code of its own. If you trust its makers, start Greenroom with --trust-remote-code."
)

_ASKS_FOR_TRUST = "trust_remote_code=True"
"""Text in the errors that libraries raise for a model with Python code of its own."""

_MAX_REASON_LENGTH = 300

_FAULTS_OF_FILES = (ValueError, LookupError, TypeError, AttributeError, FileNotFoundError)
"""Exceptions by which libraries report missing or broken files. Others, such as RuntimeError and OSError, may
come from the device or the moment."""


@contextmanager
def named_failures(
    folder: Path, model: str = "", part: str = "", passing: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Convert any exception of foreign code within, even `exit()` and Rust panics, into a problem.

    Args:
        folder: Folder of the model.
        model: Name of the model in errors; by default the folder's name.
        part: Part of the model created within, as in "its tokenizer".
        passing: Exception types to re-raise unchanged.

    Raises:
        ProblemError: The same error if raised within; 501 if a Python package is missing; else 503
            `load_failed`.
    """
    as_they_are: tuple[type[BaseException], ...] = (ProblemError, KeyboardInterrupt, *passing)
    try:
        yield
    except as_they_are:
        raise
    except BaseException as error:
        if module := missing_module(error):
            raise ProblemError(library_missing(model or folder.name, module)) from error
        reason = failure_reason(error, folder)
        detail = f"{part} is unusable: {reason}" if part else reason
        lasting = isinstance(error, _FAULTS_OF_FILES)
        raise ProblemError(load_failed(model or folder.name, detail, lasting=lasting)) from error


def failure_reason(error: BaseException, folder: Path | None = None) -> str:
    """Return a one-line reason for the client, without the server's paths.

    Args:
        error: Exception of the library or the model's own code; SystemExit if it calls `exit()`.
        folder: Folder of the model; None if no file of it is concerned.
    """
    if isinstance(error, SystemExit):
        text = (
            f"its code ended the program: exit({error.code!r})."
            if error.code
            else "its code ended the program."
        )
    else:
        said = str(error).strip()
        text = (said if folder is None else said.replace(str(folder), folder.name)) or type(error).__name__
    line = OWN_CODE if _ASKS_FOR_TRUST in text else " ".join(text.split())
    return line if len(line) <= _MAX_REASON_LENGTH else line[: _MAX_REASON_LENGTH - 1] + "…"
