"""The names of models that requests may use, and the models that they mean."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.schemas.problems import Problem, load_failed
from greenroom.schemas.protocols.pool_protocol import ModelName
from greenroom.schemas.settings.model_settings import given_values
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.catalog.catalog import Catalog
    from greenroom.engine.catalog.entries import CatalogEntry

_FAILED_SECONDS = 300.0
"""Time after which `default` may again mean a model that could not be loaded."""

_REFUSED_SECONDS = 30.0
"""The same for a model that had no memory, which others may have left by then."""


class ModelNames:
    """The names of the catalog and the settings. All methods read the disk.

    Attributes:
        settings: Current settings; a model's own settings apply when its files are opened next.
        revision: Number of changes of the settings.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.revision = 0
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._failed: dict[str, tuple[str, float]] = {}

    def reload(self, settings: Settings) -> None:
        """Use changed settings of models, names and profiles from now on."""
        with self._lock:
            self.settings, self._catalog = settings, None
            self.revision += 1

    @property
    def chooses_default(self) -> bool:
        """True if the meaning of `default` depends on which models could be loaded."""
        return bool(self.settings.default)

    @property
    def model_dirs(self) -> tuple[str, ...]:
        return self.settings.model_dir

    def rescan(self) -> None:
        """Make the next lookup scan the disk again, since models were fetched or deleted."""
        self.open_catalog().rescan()

    def find(self, name: str) -> CatalogEntry | Problem:
        """Return the catalog entry for a model name, or a 404 with similar names."""
        return self.open_catalog().find(name)

    def find_present(self, name: str) -> CatalogEntry | Problem:
        """Return a model's entry; scan the disk again if its folder has been deleted."""
        entry = self.find(name)
        if isinstance(entry, Problem) or entry.folder is None or entry.folder.is_dir():
            return entry
        self.rescan()
        found = self.find(name)
        if isinstance(found, Problem) or found.folder is None or found.folder.is_dir():
            return found
        return load_failed(found.id, "its folder is gone.")  # the operator has named it

    def resolve(self, name: str, without: Sequence[str] = ()) -> ModelName | Problem:
        """Return the meaning of a model name, or a 404 with similar names.

        Args:
            without: Models of the list `default` that failed to load for this request; for a while, others
                are preferred.
        """
        for tried in without:
            self._note_failure(tried, _REFUSED_SECONDS)
        entry = self.find(name)
        if isinstance(entry, Problem):
            return entry
        left = self.open_catalog().of_default(without) if entry.by_default else ()
        model, replaceable = left[0].id if left else entry.id, len(left) > 1
        if entry.profile is None:
            return ModelName(model, listed=not entry.unlisted, replaceable=replaceable)
        profile = self.settings.all_profiles.get(entry.profile)
        defaults = {} if profile is None else given_values(profile)  # it may have been deleted just now
        defaults.pop("model", None)
        return ModelName(model, entry.profile, defaults, replaceable=replaceable)

    def note_failure(self, model: str) -> None:
        """Record that a model could not be loaded, so that `default` means another one while there is one."""
        self._note_failure(model, _FAILED_SECONDS)

    def _note_failure(self, model: str, seconds: float) -> None:
        entry, now = self.find(model), time.monotonic()
        if not isinstance(entry, Problem):
            stamp, until = self._failed.get(entry.id, ("", 0.0))
            later = max(until if stamp == entry.stamp else 0.0, now + seconds)
            self._failed[entry.id] = entry.stamp, later

    def _has_failed(self, entry: CatalogEntry) -> bool:
        stamp, until = self._failed.get(entry.id, ("", 0.0))
        return stamp == entry.stamp and time.monotonic() < until

    def open_catalog(self) -> Catalog:
        """Return the catalog of the settings in force, which the first call scans."""
        from greenroom.engine.catalog.catalog import Catalog

        with self._lock:
            if self._catalog is None:
                self._catalog = Catalog.of(self.settings, self._has_failed)
            return self._catalog
