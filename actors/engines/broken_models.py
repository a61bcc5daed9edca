"""Models whose files are known to be unusable, so that they are not tried again until the files change."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from greenroom.schemas.problems import Problem, ProblemError


class BrokenModels:
    """The failures of models for which their files are to blame; all methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Problem]] = {}

    @contextmanager
    def watched(self, model: str, folder: Path, *others: Path) -> Iterator[None]:
        """Record a failure within that repeats until files change, and raise a recorded one at once.

        Args:
            model: The model's own id.
            folder: Folder of the model.
            others: Files and folders elsewhere that may be to blame as well.

        Raises:
            ProblemError: The error raised within, or the one recorded for the same files.
        """
        before = "".join(map(_stamp, (folder, *others)))
        with self._lock:
            files, problem = self._known.get(model, ("", None))
        if problem is not None and files == before:
            raise ProblemError(problem)
        try:
            yield
        except ProblemError as error:
            if error.problem.lasting:
                detail = f"{error.problem.detail} It is not tried again until its files change."
                with self._lock:
                    self._known[model] = before, attrs.evolve(error.problem, detail=detail)
            raise


def _stamp(path: Path) -> str:
    """Return a text that changes with a file, or with the files of a folder."""
    from greenroom.engine.catalog.files.fingerprint import fingerprint

    try:
        status = path.stat()
    except OSError:  # gone, which is a change as well
        return ""
    return f"{status.st_size} {status.st_mtime_ns} {fingerprint(path)}"
