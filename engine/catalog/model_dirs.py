"""Models in the folders of the setting `model_dir`, of one level (`NAME`) or two (`OWNER/NAME`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from greenroom.schemas.logs import get_logger

log = get_logger(__name__)

MAX_FOLDERS = 5_000
"""Maximum number of folders to look into; more are no folders of models."""


class ModelDirs:
    """The folders with a config.json within the operator's folders; faults are warned of once.

    Args:
        dirs: Paths of the folders.
    """

    def __init__(self, dirs: Sequence[str] = ()) -> None:
        self._dirs = tuple(Path(os.path.abspath(Path(path).expanduser())) for path in dirs)
        self._warned: set[Path] = set()

    def models(self) -> list[tuple[str, Path]]:
        """Return the id and the folder of each model, sorted by name within each folder.

        A model that is found twice, as through a link, is listed once.
        """
        found: list[tuple[str, Path]] = []
        seen: set[str] = set()
        for top in self._dirs:
            for model, folder in self._models_in(top):
                real = os.path.realpath(folder)
                if real not in seen:
                    seen.add(real)
                    found.append((model, folder))
        return found

    def _models_in(self, top: Path) -> Iterator[tuple[str, Path]]:
        if (top / "config.json").is_file():
            yield top.name, top
            return
        found = self._folders_of_models(top)
        for looked_into, (name, folder) in enumerate(found):
            if looked_into == MAX_FOLDERS:
                self._warn(top, f"it has more than {MAX_FOLDERS:,} folders")
                return
            if (folder / "config.json").is_file():
                yield name, folder

    def _folders_of_models(self, top: Path) -> Iterator[tuple[str, Path]]:
        """Yield folders that may hold a model, with its id; an owner's only if the owner is no model."""
        for owner in self._folders_in(top, top):
            yield owner.name, owner
            if not (owner / "config.json").is_file():
                inner = self._folders_in(owner, top)
                yield from ((f"{owner.name}/{folder.name}", folder) for folder in inner)

    def _folders_in(self, folder: Path, top: Path) -> list[Path]:
        """Return the folders in a folder, without hidden ones and links that lead back."""
        try:
            with os.scandir(folder) as entries:
                inner = sorted(
                    entry.path for entry in entries if not entry.name.startswith(".") and _is_dir(entry)
                )
        except OSError as error:
            self._warn(folder, error.strerror or str(error))
            return []
        above = {os.path.realpath(each) for each in (top, folder)}
        kept: list[Path] = []
        for path in map(Path, inner):
            if not path.name.isprintable():
                self._warn(path, "its name has characters that no request can name")
            elif path.is_symlink() and os.path.realpath(path) in above:
                self._warn(path, "it leads back to a folder that contains it")
            else:
                kept.append(path)
        return kept

    def _warn(self, folder: Path, reason: str) -> None:
        if folder not in self._warned:
            self._warned.add(folder)
            log.warning("model folder skipped", actor="pool", folder=str(folder), reason=reason)


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False
