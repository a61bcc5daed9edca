"""Fingerprints of model folders, which change with their files, and the size of these files."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

_MOST_FILES = 20_000
"""Number of entries of a folder that are looked at; links may lead around in circles."""
_DEEPEST = 3
"""Depth of nested folders that libraries look into."""


def fingerprint(folder: Path) -> str:
    """Return a digest of the names, sizes and modification times of a folder's files, 32 hexadecimal digits.

    No file is opened. Hidden files do not count, and links count as the files to which they lead.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, size, modified in sorted(_files(folder)):
        digest.update(f"{name}\0{size}\0{modified}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Return the size in bytes of the files that a folder's fingerprint covers."""
    return sum(max(0, size) for _, size, _ in _files(folder))


def _files(folder: Path) -> list[tuple[str, int, int]]:
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
