"""Safe reading of a model folder's files: regular files of plausible size only.

The folder is untrusted. Opening a named pipe waits forever for a writer, and /dev/zero has no end; libraries
open files with the GIL held, so that all threads would wait.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

MAX_CONFIG_BYTES = 4 * 1024 * 1024  # Size limit of a configuration in bytes; real ones have a few thousand

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
_DEEPEST = 3  # Depth of nested folders that libraries look into

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading without blocking; links are followed. Raises FileNotFoundError: there
    is no such file. Raises ValueError: one sentence: the file is not regular or cannot be read.
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
    """Check that libraries can safely open all files in a model's folder and its subfolders. Raises
    ValueError: one sentence about an unsafe file, or that there are too many files.
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
    """Return the status of what an entry is or links to; None for a broken link. Raises ValueError: it cannot
    be read.
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


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises ValueError: one sentence that describes the fault."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return value


def read_json(path: Path) -> Any:
    """Return the JSON value in a file. Raises ValueError: one sentence that describes the fault."""
    try:
        limit = limit_of(path.name) or MAX_LISTING_BYTES
        return json.loads(read_regular(path, min(limit, MAX_LISTING_BYTES)))
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name} in its folder") from None
    except RecursionError:
        raise ValueError(f"{path.name} is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from None


def read_optional(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if the file is missing or invalid."""
    try:
        return read_json_object(path)
    except ValueError:
        return {}


_NAMES = ("text_config", "llm_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the nested configuration of a model's text part; empty if nothing is nested."""
    return next((half for name in _NAMES if isinstance(half := config.get(name), dict)), {})


_BEGINNINGS = ("tokenizer", "tokenization", "vocab", "merges", "tekken", "spiece", "sentencepiece")
_ENDS = (".tiktoken", ".model", ".spm", ".vocab")


def check_tokenizer_files(folder: Path) -> None:
    """Check that a model's folder has a file with a tokenizer's usual name. Raises ValueError: there is no
    such file.
    """
    if not any(name.startswith(_BEGINNINGS) or name.endswith(_ENDS) for name in os.listdir(folder)):
        raise ValueError("there is no tokenizer in its folder")


_MOST_FILES = 20_000  # Number of entries of a folder that are looked at; links may lead around in circles


def fingerprint(folder: Path) -> str:
    """Return a digest of the names, sizes and modification times of a folder's files, 32 hexadecimal digits.

    No file is opened. Hidden files do not count, and links count as the files to which they lead.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, size, modified in sorted(_dated_files(folder)):
        digest.update(f"{name}\0{size}\0{modified}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Return the size in bytes of the files that a folder's fingerprint covers."""
    return sum(max(0, size) for _, size, _ in _dated_files(folder))


def _dated_files(folder: Path) -> list[tuple[str, int, int]]:
    """Return the relative names, sizes in bytes and modification times in nanoseconds of files.

    A folder that is gone or unreadable, which is a change as well, is an entry of -1 bytes.
    """
    found: list[tuple[str, int, int]] = []
    folders, left = [(str(folder), "")], _MOST_FILES
    while folders and left:
        path, within = folders.pop()
        try:
            with os.scandir(path) as entries:
                for entry in itertools.islice(entries, left):
                    left -= 1
                    name = f"{within}{entry.name}"
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        if name.count("/") < _DEEPEST:
                            folders.append((entry.path, f"{name}/"))
                    elif entry.is_file():
                        stat = entry.stat()
                        found.append((name, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append((within, -1, 0))
    return found


_FOLDERS = ("voices", "embeddings")
_DEFAULT_FILE = "default-voice.safetensors"


def list_voices(folder: Path) -> tuple[str, ...]:
    """Return the names of a model's voice files; empty if there are none."""
    found = {path.stem for name in _FOLDERS for path in (folder / name).glob("*.safetensors")}
    if (folder / _DEFAULT_FILE).is_file():
        found.add("default")
    return tuple(sorted(found))
