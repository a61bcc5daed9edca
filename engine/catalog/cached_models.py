"""Complete models in the hub's cache; a model's folder is read again only if its files have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from greenroom.engine.catalog.entries import CatalogEntry, entry_of_hub_id
from greenroom.engine.catalog.files.fingerprint import fingerprint
from greenroom.engine.catalog.hub.hub_cache import find_cached_model, list_cached_ids, model_folder


class CachedModels:
    """The hub's cache folder, with the models that the last scan has found in it.

    Args:
        cache: Path of the cache folder.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known: dict[str, tuple[str, CatalogEntry | None]] = {}

    def entries(self) -> Iterator[CatalogEntry]:
        """Yield the entries of the complete models, sorted by id; of an unchanged model no file is read."""
        for hub_id in list_cached_ids(self._cache):
            entry = self.entry(hub_id)
            if entry is not None:
                yield entry

    def entry(self, hub_id: str) -> CatalogEntry | None:
        """Return the entry of a model; None if it is not complete."""
        root = model_folder(hub_id, self._cache)
        stamp = (
            f"{fingerprint(root / 'snapshots')} {_changed(root / 'refs' / 'main')} {_changed(root / 'blobs')}"
        )
        before, entry = self._known.get(hub_id, ("", None))
        if before != stamp:
            folder = find_cached_model(hub_id, self._cache)
            entry = None if folder is None else entry_of_hub_id(hub_id, folder, stamp)
            self._known[hub_id] = stamp, entry
        return entry


def _changed(path: Path) -> int:
    """Return the time of the last change in nanoseconds; 0 if there is nothing."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
