"""The lock by which one server at a time has a database, on a file beside it.

The operating system releases it with the process, however that ends. A process id might be reused, and means
nothing across containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

_SECONDS = 0.5
"""Time for which a start waits, since a command that looks for a server holds the lock for a moment."""
_STEP = 0.02


class ServerLock:
    """A server's lock of a database, until it is closed or the process ends.

    Args:
        database: Path of the database file.

    Raises:
        BlockingIOError: Another server has the database.
        OSError: The lock's file cannot be created, or the file system has no locks.
    """

    def __init__(self, database: Path) -> None:
        self._path = _lock_path(database)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + _SECONDS
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                if time.monotonic() > until:
                    raise BlockingIOError
                time.sleep(_STEP)
        except BaseException:
            os.close(self._file)
            raise

    def holds(self) -> bool:
        """Return whether the lock's file still exists; it may have been deleted with the database."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except OSError:
            return False

    def close(self) -> None:
        """Release the lock. Its file stays, lest two servers lock different ones."""
        os.close(self._file)


def has_server(database: Path) -> bool:
    """Return whether a running server has a database; also True if that cannot be told."""
    try:
        file = os.open(_lock_path(database), os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _lock_path(database: Path) -> Path:
    path = database.resolve()
    return path.with_name(f"{path.name}-server")
