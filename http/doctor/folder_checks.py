"""Examine the folders that a server writes to: rights, and free space. No folder is created."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from greenroom.actors.store.database.check_database import check_contents
from greenroom.actors.store.database.database_file import MEMORY, UnusableDatabase, default_path
from greenroom.http.doctor.finding import Finding
from greenroom.schemas.protocols.download_protocol import size_text
from greenroom.schemas.settings.settings import Settings

LEAST_FREE = 1_000_000_000
"""Free bytes below which a disk counts as full."""


def check_folders(settings: Settings, hub_cache: Path) -> Iterator[Finding]:
    """Yield the state of each folder.

    Args:
        hub_cache: Folder of downloaded models.
    """
    yield _check("hub cache", hub_cache)
    if settings.db == MEMORY:
        yield Finding("database", "in memory")
    else:
        yield _check_database(default_path() if settings.db is None else Path(settings.db).expanduser())
    if settings.prefix_cache_dir is not None:
        yield _check("prefix cache", Path(settings.prefix_cache_dir).expanduser())
    try:
        yield _check("uploads", Path(tempfile.gettempdir()))
    except OSError as error:
        yield Finding("uploads", f"no folder for temporary files: {error.strerror}", wrong=True)


def _check_database(file: Path) -> Finding:
    if file.exists() and not file.is_file():
        return Finding("database", f"{file}: it is no file", wrong=True)
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        return Finding("database", f"{file}: this user may not read and write it", wrong=True)
    if file.exists():
        try:
            check_contents(file)
        except UnusableDatabase as error:
            return Finding("database", f"{file}: {error}", wrong=True)
    folder = _check("database", file.parent)
    return Finding("database", folder.text.replace(str(file.parent), str(file), 1), folder.wrong)


def _check(subject: str, folder: Path) -> Finding:
    try:
        existing = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        with tempfile.TemporaryFile(dir=existing):
            pass
        if folder == existing:
            os.listdir(folder)
        free = shutil.disk_usage(existing).free
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Finding(subject, f"{folder}: cannot be read and written ({reason})", wrong=True)
    told = f"{folder}: {size_text(free)} free"
    if free < LEAST_FREE:
        return Finding(subject, f"{told}, the disk is full", wrong=True)
    return Finding(subject, told if folder == existing else f"{told}, not there yet")
