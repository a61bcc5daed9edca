"""Which servers that share a database are alive: each holds a lock on a file of its own beside it.

The operating system releases it with the process, however that ends; a process id could be another's by now,
and says nothing across containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class ServerLock:
    """The sign of life of this server, from now until it is closed or the process ends.

    Args:
        database: The file of the database.
        boot: A name that no other server has.

    Raises:
        OSError: The file cannot be made, or the file system has no locks.
    """

    def __init__(self, database: Path, boot: str) -> None:
        self._path = _lock_path(database, boot)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # Another thread of this server, one that hangs, may have it already.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def holds(self) -> bool:
        """Return whether others can still see it: the file may have been deleted, with the database."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Give no more signs of life."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_alive(database: Path, boot: str) -> bool:
    """Return whether a server still runs."""
    try:
        file = os.open(_lock_path(database, boot), os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody can tell
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(file)


def remove_lock(database: Path, boot: str) -> None:
    """Remove what a server that has died left behind."""
    with contextlib.suppress(OSError):
        _lock_path(database, boot).unlink(missing_ok=True)


def _lock_path(database: Path, boot: str) -> Path:
    return database.with_name(f"{database.name}-server-{boot}")
