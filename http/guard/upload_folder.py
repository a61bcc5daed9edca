"""Uploaded files: kept on disk during their request, within a disk budget."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import trio

from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.settings.setting_fields import MEGABYTE

FILES_AT_MOST = 4
"""Disk budget of all requests, in files of the largest size."""
FREE_BYTES = 256 * MEGABYTE
"""Disk space that uploads leave free, in bytes."""
_WRITTEN_AT_ONCE = MEGABYTE


class SpooledFile:
    """A file on disk that grows while it is uploaded.

    Attributes:
        size: Bytes received so far.
    """

    def __init__(self, folder: UploadFolder, resources: ExitStack) -> None:
        self.size = 0
        self._folder = folder
        self._held = 0
        self._pending = bytearray()
        self._descriptor, self.path = folder.new_file()
        resources.callback(self._drop)

    def expect(self, size: int) -> None:
        """Reserve disk space for a file of that size.

        Raises:
            ProblemError: 503 if other uploads use up the budget, 507 if the disk is full.
        """
        self._folder.hold(size - self._held)
        self._held = max(self._held, size)

    async def write(self, data: bytes) -> None:
        """Append data; it is buffered and written on a worker thread.

        Raises:
            ProblemError: 503 if other uploads use up the budget, 507 if the disk is full.
        """
        self._pending += data
        self.size += len(data)
        if self.size > self._held:
            self.expect(self.size)
        if len(self._pending) >= _WRITTEN_AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        """Write buffered data to disk.

        Raises:
            ProblemError: 507.
        """
        data, self._pending = self._pending, bytearray()
        try:
            # Not abandoned on cancellation: the descriptor could belong to another file by then.
            await trio.to_thread.run_sync(_write_all, self._descriptor, data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise ProblemError(_disk_full()) from error
            raise

    def _drop(self) -> None:
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)
        self._folder.release(self._held)


class UploadFolder:
    """The private folder of a server's uploads.

    Args:
        max_bytes: Largest file size, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._most = max_bytes * FILES_AT_MOST
        self._held = 0
        self._path: Path | None = None

    @property
    def held(self) -> int:
        """The bytes of all files, reserved or written."""
        return self._held

    def path(self) -> Path:
        """Return the folder, created anew if the system has deleted it, which it does after some days.

        New folders are cleared of files from servers that were killed.
        """
        if self._path is None or not _is_private(self._path):
            self._path = _private_folder()
            _remove_orphans(self._path)
        return self._path

    def new_file(self) -> tuple[int, Path]:
        """Create a file, and return its open descriptor and its path."""
        prefix = f"{os.getpid()}-"
        try:
            descriptor, path = tempfile.mkstemp(prefix=prefix, dir=self.path())
        except FileNotFoundError:  # the system has just deleted the folder
            descriptor, path = tempfile.mkstemp(prefix=prefix, dir=self.path())
        return descriptor, Path(path)

    def hold(self, size: int) -> None:
        """Reserve disk space.

        Raises:
            ProblemError: 503 if other uploads use up the budget, 507 if the disk is full.
        """
        if size <= 0:
            return
        if self._held + size > self._most:
            detail = "Current requests use up the space for uploaded files. Try again."
            raise ProblemError(Problem(503, "too_many_uploads", detail, retry_after=5))
        if shutil.disk_usage(self.path()).free < size + FREE_BYTES:
            raise ProblemError(_disk_full())
        self._held += size

    def release(self, size: int) -> None:
        self._held -= size


def _write_all(descriptor: int, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _disk_full() -> Problem:
    detail = "The server's disk is too full for the file."
    return Problem(507, "insufficient_storage", detail, retry_after=60)


def _private_folder() -> Path:
    """Return a folder that belongs to this user and is inaccessible to others."""
    path = Path(tempfile.gettempdir()) / f"greenroom-uploads-{os.getuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    return path if _is_private(path) else Path(tempfile.mkdtemp(prefix="greenroom-uploads-"))


def _is_private(path: Path) -> bool:
    """Return whether a path is a real folder that only this user can access."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _remove_orphans(folder: Path) -> None:
    for file in folder.iterdir():
        process = file.name.partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)):
            file.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
