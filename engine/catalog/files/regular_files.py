"""Reading the files of a model's folder: regular files alone, of sizes that can be meant.

Anybody can have made the folder. Whoever opens a named pipe waits for ever for someone to write into it, and
/dev/zero has no end; libraries open files with the interpreter held, so that all threads wait.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Bytes of a configuration; real ones have a few thousand."""

MAX_TEMPLATE_BYTES = 1024 * 1024
"""Bytes of a chat template; real ones have some tens of thousands."""

MAX_LISTING_BYTES = 64 * 1024 * 1024
"""Bytes of a JSON file that lists tokens or weights; real ones have some millions."""

MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
"""Bytes of a tokenizer, and of whatever else is no weights."""

_LISTINGS = ("model.safetensors.index.json", "tokenizer_config.json", "added_tokens.json")
_WEIGHTS = frozenset(
    {".safetensors", ".npz", ".npy", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack"}
)
_MOST_ENTRIES = 20_000
_DEEPEST = 3
"""Folders in folders that a library looks into."""

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, without waiting for anybody; links are followed.

    Raises:
        FileNotFoundError: There is none.
        ValueError: One sentence: it is no regular file, or cannot be read.
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
        raise ValueError(f"{path.name} is {kind}, no file")
    return os.fdopen(descriptor, "rb", buffering=0)


def read_regular(path: Path, limit: int) -> bytes:
    """Return what a file holds; links are followed.

    Args:
        limit: Bytes that it may have.

    Raises:
        FileNotFoundError: There is none.
        ValueError: One sentence: it is no regular file, or too large, or cannot be read.
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
    """Return how many bytes a file of that name may have; None for weights, which may have any."""
    if Path(name).suffix.lower() in _WEIGHTS:
        return None
    if name in _LISTINGS:
        return MAX_LISTING_BYTES
    if name == "config.json" or name.endswith("_config.json"):
        return MAX_CONFIG_BYTES
    return MAX_TEMPLATE_BYTES if name.startswith("chat_template") else MAX_TOKENIZER_BYTES


def check_folder(folder: Path) -> None:
    """Make sure that a library may open what lies in a model's folder and in the folders there.

    Raises:
        ValueError: One sentence about the file that it may not.
    """
    for count, (name, status) in enumerate(_entries(folder, _DEEPEST)):
        if count > _MOST_ENTRIES:
            raise ValueError(f"there are more than {_MOST_ENTRIES} files in its folder")
        kind, limit = _kind(status.st_mode), limit_of(name)
        if kind is not None:
            raise ValueError(f"{name} is {kind}, no file")
        if limit is not None and status.st_size > limit:
            raise ValueError(_too_large(name, limit))


def _entries(folder: Path | str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield all that is no folder, leaving out what is hidden, and links whose files are gone."""
    with os.scandir(folder) as found:
        entries = [entry for entry in found if not entry.name.startswith(".")]
    for entry in entries:
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ValueError(f"{entry.name} cannot be read ({error.strerror})") from error
        if not stat.S_ISDIR(status.st_mode):
            yield entry.name, status
        elif depth > 0:
            yield from _entries(entry.path, depth - 1)


def _kind(mode: int) -> str | None:
    """Return what something is; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something unknown")


def _too_large(name: str, limit: int) -> str:
    return f"{name} is larger than {limit // 2**20} MiB"
