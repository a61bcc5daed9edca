"""The file of the database: where it lies, whom it can be read by, and whether it can be one of ours."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

MEMORY = ":memory:"
NAME = "greenroom.db"


class UnusableDatabase(Exception):
    """The database cannot be opened; the message is one line that says why."""


def default_path() -> Path:
    """Return where responses are kept if no place is named: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("greenroom", appauthor=False) / NAME


def database_uri(path: Path) -> str:
    """Return what SQLite opens, which has to be there already: no path is made into a file by accident."""
    return f"{path.absolute().as_uri()}?mode=rw"


def prepare_file(path: Path) -> None:
    """Make the file and its folder if they are not there, and let nobody but their owner read the file.

    A folder that is there already is left as it is. Symbolic links are followed.

    Raises:
        UnusableDatabase: SQLite could not work with it, for a reason that it would not name.
    """
    try:
        if not path.is_absolute() and path.parts[:1] == ("~",):
            raise UnusableDatabase("there is no home folder")
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        # An existing file is never opened here: closing it would end the locks that SQLite has on it.
        # What SQLite makes beside it (`-wal`, `-shm`) gets its mode.
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
    # Some disks, such as those that cameras and Windows read, know no modes.
    with contextlib.suppress(OSError):
        path.chmod(0o600)
