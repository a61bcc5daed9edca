"""Detection of live servers that share a database: each locks its own file beside it.

The operating system releases the lock with the process, however that ends. A process id might be reused, and
means nothing across containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


class ServerLock:
    """The file lock that marks this server as alive until it is closed or the process ends.

    Args:
        database: Path of the database file.
        boot: Unique id of this server process.

    Raises:
        OSError: The file cannot be created, or the file system has no locks.
    """

    def __init__(self, database: Path, boot: str) -> None:
        self._path = _lock_path(database, boot)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # A hung thread of this server may hold the lock already.
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def holds(self) -> bool:
        """Return whether the lock file still exists; it may have been deleted with the database."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Delete the lock file and release the lock."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        os.close(self._file)


def is_alive(database: Path, boot: str) -> bool:
    """Return whether a server is still running."""
    try:
        file = os.open(_lock_path(database, boot), os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # unknown, so the server counts as alive
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(file)


def remove_lock(database: Path, boot: str) -> None:
    """Remove the lock file of a dead server."""
    with contextlib.suppress(OSError):
        _lock_path(database, boot).unlink(missing_ok=True)


def _lock_path(database: Path, boot: str) -> Path:
    return database.with_name(f"{database.name}-server-{boot}")
