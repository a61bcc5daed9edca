"""Folders of a repository in the hub's cache: blobs, an outline before the fetch, and the snapshot after it.

Greenroom makes the links itself, in the hub library's layout: the library would ask the hub again for every
file, could not be cancelled, and takes small files unchecked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from greenroom.engine.catalog.hub.hub_cache import model_folder
from greenroom.engine.catalog.hub.part_file import SUFFIX
from greenroom.engine.catalog.hub.repository import RemoteFile, Repository

_LAST = "config.json"
"""The file without which a snapshot counts as incomplete; it is linked last."""


class SnapshotFolder:
    """The folders of a repository in the hub's cache. Methods block.

    Args:
        cache: The cache folder.
    """

    def __init__(self, repository: Repository, cache: Path) -> None:
        self._repository = repository
        self._root = model_folder(repository.hub_id, cache)
        self._blobs = self._root / "blobs"
        self.folder = self._root / "snapshots" / repository.commit
        self.outline = cache / ".greenroom" / self._root.name

    def blob(self, file: RemoteFile) -> Path:
        """Return the path of a file's content."""
        return self._blobs / file.digest

    def has(self, file: RemoteFile) -> bool:
        """Return whether a file's whole content is in the cache."""
        try:
            return self.blob(file).stat().st_size == file.size
        except OSError:
            return False

    def missing_bytes(self, files: Iterable[RemoteFile]) -> int:
        """Return the bytes of files that are still missing; bytes that parts hold are not missing."""
        missing = {file.digest: file for file in files if not self.has(file)}
        return sum(max(0, file.size - self.part_bytes(file)) for file in missing.values())

    def part_bytes(self, file: RemoteFile) -> int:
        """Return the bytes of a file that are there, in a part or as a whole."""
        if self.has(file):
            return file.size
        try:
            return self.blob(file).with_name(file.digest + SUFFIX).stat().st_size
        except OSError:
            return 0

    def draw_outline(self, metadata: Iterable[RemoteFile]) -> None:
        """Make the folder by which the model's kind is detected: metadata, and empty files for the others.

        Args:
            metadata: Files whose content is there.

        Raises:
            OSError: The disk refuses, or one name is a file and a folder.
        """
        self.erase_outline()
        known = {file.path for file in metadata}
        for file in self._repository.files:
            place = self.outline / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.path in known:
                _link(self.blob(file), place)
            else:
                place.touch()

    def erase_outline(self) -> None:
        shutil.rmtree(self.outline, ignore_errors=True)

    def erase_unlinked(self) -> None:
        """Delete all folders of a repository that has no snapshot, such as one that was refused."""
        if not (self._root / "snapshots").exists():
            shutil.rmtree(self._root, ignore_errors=True)

    def drop_stale_parts(self) -> None:
        """Delete the parts of files that the hub has changed or removed."""
        listed = {file.digest for file in self._repository.files}
        for part in self._blobs.glob(f"*{SUFFIX}"):
            if part.name.removesuffix(SUFFIX) not in listed:
                part.unlink(missing_ok=True)

    def link(self, files: Iterable[RemoteFile]) -> Path:
        """Link the files into the snapshot, and point the revision to it; return the snapshot's folder.

        Raises:
            OSError: The disk refuses.
        """
        for file in sorted(files, key=lambda file: file.path == _LAST):
            place = self.folder / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            _link(self.blob(file), place)
        if self._repository.revision != self._repository.commit:
            reference = self._root / "refs" / self._repository.revision
            reference.parent.mkdir(parents=True, exist_ok=True)
            new = reference.with_name(f".{reference.name}.{os.getpid()}")
            new.write_text(self._repository.commit)
            os.replace(new, reference)
        return self.folder


def _link(blob: Path, place: Path) -> None:
    """Put a file's content into a snapshot: by a relative link, or a copy where there are no links."""
    new = place.with_name(f".{place.name[:200]}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        new.symlink_to(os.path.relpath(blob, place.parent))
    except OSError:
        with contextlib.suppress(OSError):
            os.link(blob, new)
        if not new.exists():
            shutil.copyfile(blob, new)
    os.replace(new, place)
