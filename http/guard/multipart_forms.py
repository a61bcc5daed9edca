"""Forms with a file (multipart/form-data, RFC 7578), with size limits; the file goes to disk."""

from __future__ import annotations

import errno
import math
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs
import trio
from quart import Request
from werkzeug.exceptions import RequestEntityTooLarge
from werkzeug.sansio.multipart import NEED_DATA, Data, Epilogue, Field, File, MultipartDecoder, Preamble

from greenroom.http.guard.request_body import body_limit
from greenroom.schemas.problems import Problem, ProblemError, invalid
from greenroom.schemas.settings.setting_groups import MEGABYTE

FILE = "file"  # Name of the file's field
MAX_PARTS = 64
MAX_FIELD_BYTES = 64 * 1024  # Limit on one field, in bytes; all fields together may take four times that
MAX_HEAD_BYTES = 16 * 1024  # Limit on the headers of a part, in bytes
SLOWEST = 64 * 1024
"""Minimum average rate of an upload in bytes per second, once the usual body timeout is over."""
_FORM_BYTES = 4 * MAX_FIELD_BYTES
_AT_ONCE = 64 * 1024
_LONGEST_BOUNDARY = 200


@attrs.frozen
class Form:
    """Fields and file of a form. `fields`: names and values in order; names may repeat."""

    fields: tuple[tuple[str, str], ...]
    file: SpooledFile | None


class FormReader:
    """Reads forms from requests.

    Args:
        max_bytes: Largest file size, in bytes.

    Attributes:
        folder: Folder for the files.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.folder = UploadFolder(max_bytes)

    async def read(self, request: Request, resources: ExitStack) -> Form:
        """Read the fields and the file of a request's multipart form.

        Args:
            resources: Resources of the request; the file is deleted when they close.

        Raises:
            ProblemError: 400 for an invalid form, 413 if it is too large, 415 for another type, 503 if other
                uploads use up the budget, 507 if the disk is full.
            RequestTimeout: The client sends too slowly.
        """
        if request.mimetype != "multipart/form-data":
            detail = "This endpoint takes multipart/form-data bodies only, with a part named `file`."
            raise ProblemError(Problem(415, "unsupported_media_type", detail))
        boundary = request.mimetype_params.get("boundary", "").encode("latin-1", "replace")
        if not 0 < len(boundary) <= _LONGEST_BOUNDARY:
            raise _malformed("its Content-Type names no boundary")
        most = self.max_bytes + _FORM_BYTES + MAX_PARTS * MAX_HEAD_BYTES
        declared = request.content_length or 0
        if declared > most:
            raise ProblemError(self._too_large())
        reading = _Reading(self, boundary, resources, declared)
        timeout = math.inf if request.body_timeout is None else request.body_timeout
        began, received = trio.current_time(), 0
        limit = body_limit(request, began + timeout)
        with trio.CancelScope(deadline=limit.deadline) as scope:
            async for part in request.body:
                received += len(part)
                if received > most:  # even if it is no part of a field or of the file
                    raise ProblemError(self._too_large())
                limit = body_limit(request, began + timeout + received / SLOWEST)
                scope.deadline = limit.deadline
                for start in range(0, len(part), _AT_ONCE):
                    await reading.feed(part[start : start + _AT_ONCE])
        if scope.cancelled_caught:
            raise limit.late()
        return await reading.finish()

    def check_size(self, size: int) -> None:
        """Refuse a file beyond the size limit. Raises ProblemError: 413."""
        if size > self.max_bytes:
            raise ProblemError(self._too_large())

    def _too_large(self) -> Problem:
        size = self.max_bytes
        most = f"{size >> 20} MB" if size >> 20 else f"{size} bytes"
        return Problem(
            413, "file_too_large", f"`file` is larger than {most} (setting max_upload_bytes).", FILE
        )


class _Reading:
    """Parser state of one form. `declared`: content-Length of the body, in bytes; 0 if unknown."""

    def __init__(self, reader: FormReader, boundary: bytes, resources: ExitStack, declared: int) -> None:
        self._reader = reader
        self._resources = resources
        self._declared = declared
        # Its buffer holds at most the head of a part plus the piece that is fed.
        self._decoder = MultipartDecoder(boundary, MAX_HEAD_BYTES + _AT_ONCE, max_parts=MAX_PARTS)
        self._fields: list[tuple[str, str]] = []
        self._file: SpooledFile | None = None
        self._name = ""
        self._value: bytearray | None = None
        self._fields_size = 0
        self._ended = False

    async def feed(self, data: bytes | None) -> None:
        """Parse the next bytes of a form's body; None marks its end."""
        if self._ended:
            return  # data after the last boundary is ignored
        try:
            self._decoder.receive_data(data)
            while (event := self._decoder.next_event()) is not NEED_DATA and not self._ended:
                await self._take(event)
        except UnicodeDecodeError as error:
            raise _malformed("the head of a part is not UTF-8") from error
        except (ValueError, AssertionError) as error:
            raise self._no_boundary() or _malformed("it is cut off, or not multipart/form-data") from error
        except RequestEntityTooLarge as error:
            if without := self._no_boundary():
                raise without from error
            raise _too_many_parts() from error

    async def finish(self) -> Form:
        if not self._ended:
            await self.feed(None)
        if self._file is not None:
            await self._file.flush()
        return Form(tuple(self._fields), self._file)

    def _no_boundary(self) -> ProblemError | None:
        """Return a problem if the first boundary is missing, a typical error in hand-written headers."""
        if self._decoder.state.name != "PREAMBLE":
            return None
        return _malformed("it does not begin with the boundary that its Content-Type names")

    async def _take(self, event: object) -> None:
        match event:
            case Preamble():
                pass
            case File(name=name, headers=head) | Field(name=name, headers=head):
                if sum(len(key) + len(value) for key, value in head) > MAX_HEAD_BYTES:
                    raise _too_many_parts()
                self._begin(name, isinstance(event, File))
            case Data(data=data, more_data=more):
                await self._append(data, more)
                self._ended = not more and self._decoder.state.name == "EPILOGUE"
            case Epilogue():
                self._ended = True

    def _begin(self, name: str | None, is_file: bool) -> None:
        if not name:
            raise _malformed("a part has no name")
        self._name = name
        self._value = None if is_file or name == FILE else bytearray()
        if name == FILE:
            if self._file is not None:
                raise invalid("`file` is sent twice: send one file.", FILE)
            self._file = SpooledFile(self._reader.folder, self._resources)
            self._file.expect(min(self._declared, self._reader.max_bytes))

    async def _append(self, data: bytes, more: bool) -> None:
        if self._value is not None:
            self._value += data
            self._fields_size += len(data)
            if len(self._value) > MAX_FIELD_BYTES or self._fields_size > _FORM_BYTES:
                detail = (
                    f"A field has at most {MAX_FIELD_BYTES >> 10} kB, and all of them {_FORM_BYTES >> 10} kB."
                )
                raise ProblemError(Problem(413, "field_too_large", detail, self._name))
            if not more:
                self._fields.append((self._name, _text(self._name, self._value)))
        elif self._name == FILE and self._file is not None:
            self._reader.check_size(self._file.size + len(data))
            await self._file.write(data)


def _text(name: str, value: bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(f"`{name}` is not UTF-8.", name) from None


def _too_many_parts() -> ProblemError:
    detail = f"A form has at most {MAX_PARTS} parts, whose heads have at most {MAX_HEAD_BYTES >> 10} kB."
    return ProblemError(Problem(413, "form_too_large", detail))


def _malformed(why: str) -> ProblemError:
    return ProblemError(Problem(400, "invalid_form", f"The body is not a valid form: {why}."))


FILES_AT_MOST = 4  # Disk budget of all requests, in files of the largest size
FREE_BYTES = 256 * MEGABYTE  # Disk space that uploads leave free, in bytes
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
        """Reserve disk space for a file of that size. Raises ProblemError: 503 if other uploads use up the
        budget, 507 if the disk is full.
        """
        self._folder.hold(size - self._held)
        self._held = max(self._held, size)

    async def write(self, data: bytes) -> None:
        """Append data; it is buffered and written on a worker thread. Raises ProblemError: 503 if other
        uploads use up the budget, 507 if the disk is full.
        """
        self._pending += data
        self.size += len(data)
        if self.size > self._held:
            self.expect(self.size)
        if len(self._pending) >= _WRITTEN_AT_ONCE:
            await self.flush()

    async def flush(self) -> None:
        """Write buffered data to disk. Raises ProblemError: 507."""
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
    """The private folder of a server's uploads. `max_bytes`: largest file size, in bytes."""

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
        prefix = f"{os.getpid()}-"
        try:
            descriptor, path = tempfile.mkstemp(prefix=prefix, dir=self.path())
        except FileNotFoundError:  # the system has just deleted the folder
            descriptor, path = tempfile.mkstemp(prefix=prefix, dir=self.path())
        return descriptor, Path(path)

    def hold(self, size: int) -> None:
        """Reserve disk space. Raises ProblemError: 503 if other uploads use up the budget, 507 if the disk is
        full.
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
    path = Path(tempfile.gettempdir()) / f"greenroom-uploads-{os.getuid()}"
    with suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    return path if _is_private(path) else Path(tempfile.mkdtemp(prefix="greenroom-uploads-"))


def _is_private(path: Path) -> bool:
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
        pass
    return True
