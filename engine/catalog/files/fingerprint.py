"""Fingerprints of model folders, which change with their files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

_MOST_FILES = 20_000
_DEEPEST = 3
"""Depth of nested folders that libraries look into."""


def fingerprint(folder: Path) -> str:
    """Return a digest of the names, sizes and modification times of a folder's files, 32 hexadecimal digits.

    No file is opened. Hidden files do not count, and links count as the files to which they lead.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, size, modified in sorted(_files(folder, ""))[:_MOST_FILES]:
        digest.update(f"{name}\0{size}\0{modified}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(folder: Path, within: str) -> list[tuple[str, int, int]]:
    """Return the relative names, sizes in bytes and modification times in nanoseconds of files."""
    found: list[tuple[str, int, int]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                name = f"{within}{entry.name}"
                if entry.is_dir():
                    if name.count("/") < _DEEPEST:
                        found += _files(Path(entry.path), f"{name}/")
                elif entry.is_file():
                    stat = entry.stat()
                    found.append((name, stat.st_size, stat.st_mtime_ns))
    except OSError:  # gone or unreadable, which is a change as well
        found.append((within, -1, 0))
    return found
