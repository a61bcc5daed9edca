"""Detection of model folders, done once for unchanged files."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.entries import CatalogEntry
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError


class KnownFolders:
    """The capability records that the files of model folders suggest, kept until the files change.

    Args:
        trust_remote_code: Whether models with Python code of their own are usable.
    """

    def __init__(self, trust_remote_code: bool = False) -> None:
        self._trust = trust_remote_code
        self._known: dict[tuple[Path, bool], tuple[str, CapabilityRecord | Problem]] = {}

    def record_of(
        self, entry: CatalogEntry, *, allow_vision: bool = True
    ) -> CapabilityRecord | Problem | None:
        """Return a model's record, or the reason why its files are unusable; None if there are no files."""
        if entry.folder is None:
            return None
        place = entry.folder, allow_vision
        stamp, found = self._known.get(place, ("", None))
        if found is None or stamp != entry.stamp:
            found = self._detect(entry.folder, entry.id, allow_vision)
            self._known[place] = entry.stamp, found
        return found

    def is_usable(self, entry: CatalogEntry) -> bool:
        return isinstance(self.record_of(entry), CapabilityRecord)

    def _detect(self, folder: Path, name: str, allow_vision: bool) -> CapabilityRecord | Problem:
        try:
            return detect(folder, self._trust, name, allow_vision=allow_vision)
        except ProblemError as error:
            return error.problem
