"""The database file: its path, permissions, checks, and the lock of the server that has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

MEMORY = ":memory:"
NAME = "greenroom.db"


class UnusableDatabase(Exception):
    """An error for a database that cannot be opened; its message gives the reason in one line."""


def default_path() -> Path:
    """Return the default path of the database, in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("greenroom", appauthor=False) / NAME


def database_uri(path: Path) -> str:
    """Return a URI for an existing file, so that SQLite does not create one by accident."""
    return f"{path.absolute().as_uri()}?mode=rw"


def prepare_file(path: Path) -> None:
    """Create the file and its folder if they are missing, and make the file readable only by its owner.

    An existing folder stays unchanged. Symbolic links are followed.

    Raises:
        UnusableDatabase: SQLite could not use the file, and would not give the reason.
    """
    try:
        if not path.is_absolute() and path.parts[:1] == ("~",):
            raise UnusableDatabase("there is no home folder")
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # An existing file is never opened here, since closing it would release SQLite's locks on it.
        # SQLite gives its other files (`-wal`, `-shm`) the same mode.
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise UnusableDatabase("it is no file")
        if stat.S_IMODE(found.st_mode) & 0o077:
            _hide_from_others(path, found.st_uid)
        for place in (path, path.resolve().parent):
            if not os.access(place, os.W_OK):
                raise UnusableDatabase(f"'{place}' cannot be written to")
    except (OSError, ValueError, RuntimeError) as error:
        raise UnusableDatabase(getattr(error, "strerror", None) or str(error)) from error


def _hide_from_others(path: Path, owner: int) -> None:
    if owner != os.geteuid():
        raise UnusableDatabase("it is another user's, and others can read it")
    # Some file systems, such as those of cameras and Windows, have no modes.
    with contextlib.suppress(OSError):
        path.chmod(0o600)


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


# The lock by which one server at a time has a database, on a file beside it.
#
# The operating system releases it with the process, however that ends. A process id might be reused, and
# means nothing across containers.

_SECONDS = 0.5
"""Time for which a start waits, since a command that looks for a server holds the lock for a moment."""
_STEP = 0.02


class ServerLock:
    """A server's lock of a database, until it is closed or the process ends.

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
