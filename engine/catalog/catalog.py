"""Catalog of servable models and their folders; it only reads folders and imports nothing heavy."""

from __future__ import annotations

import difflib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from greenroom.engine.catalog.hub.hub_cache import (
    HUB_ID,
    find_cached_model,
    hub_cache_folder,
    list_cached_ids,
)
from greenroom.engine.catalog.kinds.detection import detect
from greenroom.schemas.problems import Problem, ProblemError, model_not_found
from greenroom.schemas.settings.name_patterns import is_pattern, name_pattern
from greenroom.schemas.settings.settings import Aliases

DEFAULT_ID = "default"
"""Alias of the first model."""

DEMO_ID = "greenroom-demo"
DEMO_FOLDER = Path(__file__).parents[1] / "demo" / "model"

LATEST = ":latest"
"""Tag that Ollama clients append to names without a tag."""

_RESCAN_SECONDS = 5.0


@attrs.frozen
class CatalogEntry:
    """A model that clients can request.

    Args:
        id: Public id.
        folder: Folder of its files; None if they are not downloaded yet.
        created: Unix time in seconds of its configuration file.
        owned_by: Owner, as reported to clients.
        hub_id: Hub id to download it from; None for a local folder.
    """

    id: str
    folder: Path | None
    created: int = 0
    owned_by: str = "greenroom"
    hub_id: str | None = None


class Catalog:
    """The models of one server: those the operator named, in order, then those in the hub cache.

    A requested name is only compared with ids and never becomes a path.

    Args:
        models: Hub ids and folders named by the operator; if empty, the demo model is served.
        demo: Folder of the demo model.
        cache: Hub cache folder; located as huggingface_hub does by default.
        trust_remote_code: Whether models with Python code of their own are listed.
        aliases: Further names and patterns with their models; a model's own name precedes a pattern.
    """

    def __init__(
        self,
        models: tuple[str, ...] = (),
        demo: Path = DEMO_FOLDER,
        cache: Path | None = None,
        trust_remote_code: bool = False,
        aliases: Aliases = (),
    ) -> None:
        self._cache = cache if cache is not None else hub_cache_folder()
        self._trust = trust_remote_code
        self._aliases = dict(aliases)
        self._patterns = tuple((name_pattern(name), model) for name, model in aliases if is_pattern(name))
        self._named = self._named_entries(models) if models else (_entry_of_folder(demo, DEMO_ID),)
        of_folders = {entry.folder: entry.id for entry in self._named if entry.hub_id is None}
        self._written = {model: of_folders.get(resolve_folder(model)) for model in models}
        self._found: tuple[CatalogEntry, ...] = ()
        self._scanned = float("-inf")

    def entries(self) -> tuple[CatalogEntry, ...]:
        """Return every model, the named ones first."""
        now = time.monotonic()
        if now - self._scanned > _RESCAN_SECONDS:
            named_ids = {entry.id for entry in self._named}
            self._found = tuple(entry for entry in self._scan_cache() if entry.id not in named_ids)
            self._scanned = now
        return (*(self._with_folder(entry) for entry in self._named), *self._found)

    def names(self) -> dict[str, CatalogEntry]:
        """Return the entries by name: models, then aliases, but neither `default` nor patterns."""
        names = {entry.id: entry for entry in self.entries()}
        exact = ((alias, model) for alias, model in self._aliases.items() if not is_pattern(alias))
        meant = ((alias, self._entry(model)) for alias, model in exact)
        return names | {alias: entry for alias, entry in meant if entry is not None}

    def find(self, model: str) -> CatalogEntry | Problem:
        """Return the entry of a requested name, or a 404 problem with similar and known names.

        Model ids precede aliases, aliases precede patterns, and patterns precede the operator's own spelling
        of a model. A name that ends in `:latest` is looked up with and without that tag.
        """
        names = dict.fromkeys((model, model.removesuffix(LATEST)))
        for look_up in (self._entry, self._of_alias, self._of_pattern, self._of_written):
            if (found := next(filter(None, map(look_up, names)), None)) is not None:
                return found
        ids = {name.lower(): name for name in self.names()}
        near = difflib.get_close_matches(model[:200].lower(), ids, n=3, cutoff=0.4)
        known = [entry.id for entry in self.entries()]
        return model_not_found(model[:200], [ids[name] for name in near], known)

    def _entry(self, model: str | None) -> CatalogEntry | None:
        for entry in self._named:
            if entry.id == model:
                return self._with_folder(entry)
        if model == DEFAULT_ID:
            return self._with_folder(self._named[0])
        return next((entry for entry in self.entries() if entry.id == model), None)

    def _of_alias(self, name: str) -> CatalogEntry | None:
        return self._entry(self._aliases.get(name))

    def _of_pattern(self, name: str) -> CatalogEntry | None:
        fits = (model for pattern, model in self._patterns if pattern.fullmatch(name[:200]))
        return self._entry(next(fits, None))

    def _of_written(self, name: str) -> CatalogEntry | None:
        return self._entry(self._written.get(name))

    def _named_entries(self, models: tuple[str, ...]) -> tuple[CatalogEntry, ...]:
        named: list[CatalogEntry] = []
        for model in models:
            folder = resolve_folder(model)
            ids = {entry.id for entry in named}
            if folder is None and model not in ids:
                named.append(_entry_of_hub_id(model, None))
            elif folder is not None and all(entry.folder != folder for entry in named):
                name = DEMO_ID if folder == DEMO_FOLDER else folder.name
                numbered = (f"{name}-{n}" for n in itertools.count(2))
                free = next(name for name in itertools.chain([name], numbered) if name not in ids)
                named.append(_entry_of_folder(folder, free))
        return tuple(named)

    def _with_folder(self, entry: CatalogEntry) -> CatalogEntry:
        """Return the entry with its folder if its files have been downloaded since."""
        if entry.hub_id is None or entry.folder is not None:
            return entry
        folder = find_cached_model(entry.hub_id, self._cache)
        return entry if folder is None else _entry_of_hub_id(entry.hub_id, folder)

    def _scan_cache(self) -> Iterator[CatalogEntry]:
        for hub_id in list_cached_ids(self._cache):
            folder = find_cached_model(hub_id, self._cache)
            if folder is None:
                continue
            try:
                detect(folder, self._trust, hub_id)
            except ProblemError:
                continue
            yield _entry_of_hub_id(hub_id, folder)


def local_folder(model: str) -> Path | None:
    """Return the folder of a model by an operator's name for it; None if it is not downloaded yet."""
    return resolve_folder(model) or find_cached_model(model, hub_cache_folder())


def resolve_folder(model: str) -> Path | None:
    """Return the folder for an operator's name of a model; None if it is a hub id."""
    path = Path(os.path.abspath(Path(model).expanduser()))
    if path.is_dir():
        return path
    if model == DEMO_ID:
        return DEMO_FOLDER
    return None if HUB_ID.fullmatch(model) else path


def _entry_of_folder(folder: Path, model: str) -> CatalogEntry:
    return CatalogEntry(model, folder, _modified_at(folder))


def _entry_of_hub_id(hub_id: str, folder: Path | None) -> CatalogEntry:
    created = _modified_at(folder) if folder is not None else 0
    return CatalogEntry(hub_id, folder, created, hub_id.partition("/")[0], hub_id)


def _modified_at(folder: Path) -> int:
    try:
        return max(0, int((folder / "config.json").stat().st_mtime))
    except OSError:
        return 0
