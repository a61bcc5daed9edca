"""Locks on a repository in the hub's cache: fetches of it take turns, and no fetch meets a deletion."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from greenroom.engine.catalog.hub.hub_cache import model_folder
from greenroom.schemas.problems import Problem, ProblemError

_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class RepositoryLock:
    """The lock on one repository, which a process that dies releases. No method waits for another process.

    A second file, which only a deletion locks, tells the others why they do not get the first.
    """

    def __init__(self, hub_id: str, cache: Path) -> None:
        self._hub_id = hub_id
        folder = cache / ".locks" / model_folder(hub_id, cache).name
        self._owned, self._deleting = folder / "greenroom.lock", folder / "greenroom.deleting"
        self._descriptors: list[int] = []

    def try_to_fetch(self) -> bool:
        """Take the lock for a fetch; return False while another fetch has it.

        Raises:
            ProblemError: 409: the model is being deleted.
            OSError: The file of the lock cannot be made.
        """
        if self._take(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return True
        if self._is_deleting():
            raise ProblemError(being_deleted(self._hub_id))
        return False

    def delete(self) -> None:
        """Take the lock for a deletion.

        Raises:
            ProblemError: 409: the model is being fetched, or deleted already.
            OSError: The file of the lock cannot be made.
        """
        if not self._take(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB):
            problem = being_deleted if self._is_deleting() else being_fetched
            raise ProblemError(problem(self._hub_id))
        self._take(self._deleting, fcntl.LOCK_EX)  # waits for those that look at it, which never hold it

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())

    def __enter__(self) -> RepositoryLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_deleting(self) -> bool:
        if not self._take(self._deleting, fcntl.LOCK_SH | fcntl.LOCK_NB):
            return True
        os.close(self._descriptors.pop())
        return False

    def _take(self, path: Path, how: int) -> bool:
        """Return whether a file is locked now; a file system without locks counts as free."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, how)
        except OSError as error:
            if error.errno in _HELD:
                os.close(descriptor)
                return False
        self._descriptors.append(descriptor)
        return True


def being_fetched(model: str) -> Problem:
    detail = f"'{model[:200]}' is being fetched: cancel that first, or wait for its end."
    return Problem(409, "model_in_use", detail, "model")


def being_deleted(model: str) -> Problem:
    """Return the problem of a fetch, or another deletion, during a deletion."""
    detail = f"'{model[:200]}' is being deleted: try again when that has ended."
    return Problem(409, "model_in_use", detail, "model", retry_after=1)
