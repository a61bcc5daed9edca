"""Safe reading of a model folder's files: regular files of plausible size only.

The folder is untrusted. Opening a named pipe waits forever for a writer, and /dev/zero has no end; libraries
open files with the GIL held, so that all threads would wait.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Size limit of a configuration in bytes; real ones have a few thousand."""

MAX_TEMPLATE_BYTES = 1024 * 1024
"""Size limit of a chat template in bytes; real ones have some tens of thousands."""

MAX_LISTING_BYTES = 64 * 1024 * 1024
"""Size limit in bytes of a JSON file that lists tokens or weights; real ones have a few millions."""

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
"""Size limit in bytes of a tokenizer and of other files that libraries read whole."""

_LISTINGS = ("model.safetensors.index.json", "tokenizer_config.json", "added_tokens.json")
_READ_WHOLE = frozenset(
    {
        *("", ".json", ".jsonl", ".jinja", ".txt", ".model", ".tiktoken", ".spm", ".bpe", ".vocab"),
        *(".yaml", ".yml", ".toml", ".py", ".csv", ".tsv", ".metadata", ".md"),
        *(".flac", ".mp3", ".wav"),
    }
)
"""Endings of files that libraries read whole; no other file but weights is opened."""
_MOST_ENTRIES, _MOST_FOLDERS = 20_000, 1_000
_DEEPEST = 3
"""Depth of nested folders that libraries look into."""

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading without blocking; links are followed.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: One sentence: the file is not regular or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read ({error.strerror or type(error).__name__})") from error
    kind = _kind(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise ValueError(f"{path.name} is {kind}, not a file")
    return os.fdopen(descriptor, "rb", buffering=0)


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a regular file; links are followed.

    Args:
        limit: Size limit in bytes.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: One sentence: the file is not regular, is too large, or cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ValueError(_too_large(path.name, limit))
        try:
            return file.read(size)
        except OSError as error:
            raise ValueError(f"{path.name} cannot be read ({error.strerror})") from error


def limit_of(name: str) -> int | None:
    """Return the size limit in bytes for a file name; None for weights and files that no library reads."""
    if Path(name).suffix.lower() not in _READ_WHOLE:
        return None
    if name in _LISTINGS:
        return MAX_LISTING_BYTES
    if name == "config.json" or name.endswith("_config.json"):
        return MAX_CONFIG_BYTES
    return MAX_TEMPLATE_BYTES if name.startswith("chat_template") else MAX_TOKENIZER_BYTES


def check_folder(folder: Path) -> None:
    """Check that libraries can safely open all files in a model's folder and its subfolders.

    Raises:
        ValueError: One sentence about an unsafe file, or that there are too many files.
    """
    for name, status in _files(folder):
        kind, limit = _kind(status.st_mode), limit_of(name)
        if kind is not None:
            raise ValueError(f"{name} is {kind}, not a file")
        if limit is not None and status.st_size > limit:
            raise ValueError(_too_large(name, limit))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all non-folders, except hidden ones and broken links."""
    entries, folders = 0, 0
    pending: list[tuple[str, int]] = [(str(folder), _DEEPEST)]
    while pending:
        path, depth = pending.pop()
        with os.scandir(path) as found:
            for entry in found:
                entries += 1
                if entries > _MOST_ENTRIES:
                    raise ValueError(f"there are more than {_MOST_ENTRIES:,} files in its folder")
                if entry.name.startswith(".") or (status := _status(entry)) is None:
                    continue
                if not stat.S_ISDIR(status.st_mode):
                    yield entry.name, status
                    continue
                folders += 1
                if folders > _MOST_FOLDERS:
                    raise ValueError(f"there are more than {_MOST_FOLDERS:,} folders in its folder")
                if depth > 0:
                    pending.append((entry.path, depth - 1))


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of what an entry is or links to; None for a broken link.

    Raises:
        ValueError: It cannot be read.
    """
    try:
        return entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{entry.name} cannot be read ({error.strerror})") from error


def _kind(mode: int) -> str | None:
    """Return a readable name for an unexpected file type; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something unknown")


def _too_large(name: str, limit: int) -> str:
    return f"{name} is larger than {limit // 2**20} MiB"
