"""Catalog of servable models and their folders; it only reads folders and imports nothing heavy."""

from __future__ import annotations

import difflib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from greenroom.engine.catalog.folders import (
    DEMO_FOLDER,
    DEMO_ID,
    CachedModels,
    CatalogEntry,
    KnownFolders,
    ModelDirs,
    entry_of_folder,
    entry_of_hub_id,
    resolve_folder,
)
from greenroom.engine.catalog.hub.hub_cache import HUB_ID, hub_cache_folder
from greenroom.engine.catalog.lora_adapters import CatalogAdapters, Judge
from greenroom.schemas.problems import Problem, model_not_found
from greenroom.schemas.settings.settings import Aliases, Settings, is_pattern, name_pattern

RESCAN_SECONDS = 5.0  # Seconds after which folders are looked through again


class Catalog:
    """The models of one server: those the operator named, in order, those of `model_dir`, and the hub cache.

    A requested name is only compared with ids and never becomes a path. All methods may be called on any
    thread, and read the disk.

    Args:
        models: Hub ids and folders named by the operator; if empty, the demo model is served.
        cache: Hub cache folder; located as huggingface_hub does by default.
        aliases: Further names and patterns with their models; a model's own name precedes a pattern.
        default: Candidates for the name `default`, which means the first usable one; without any, it means
            the first model.
        allow_downloads: Whether a hub id that is not listed means that model.
        failed: Predicate for models that could not be loaded, which `default` passes over.
        judge: Function from the folders of an adapter and its base to the reason why it is refused, a
            sentence; empty if it is not.
    """

    def __init__(
        self,
        models: tuple[str, ...] = (),
        demo: Path = DEMO_FOLDER,
        cache: Path | None = None,
        trust_remote_code: bool = False,
        aliases: Aliases = (),
        *,
        profiles: Mapping[str, str] | None = None,
        model_dirs: Sequence[str] = (),
        default: Sequence[str] = (),
        allow_downloads: bool = False,
        failed: Callable[[CatalogEntry], bool] = lambda entry: False,
        judge: Judge = lambda folder, base: "",
    ) -> None:
        self._cache = cache if cache is not None else hub_cache_folder()
        self.known = KnownFolders(trust_remote_code)
        self._cached = CachedModels(self._cache)
        self._dirs = ModelDirs(model_dirs)
        self._default = tuple(default)
        self._failed = failed
        self._allow_downloads = allow_downloads
        # Without a model of the operator there must be one that answers.
        fallback = () if model_dirs else (entry_of_folder(demo, DEMO_ID),)
        self._named = self._named_entries(models) if models else fallback
        of_folders = {entry.folder: entry.id for entry in self._named if entry.hub_id is None}
        self._written = {model: of_folders.get(resolve_folder(model)) for model in models}
        self.adapters = CatalogAdapters(judge, self.known.record_of)
        lookups = self._entry, self._of_default
        self._names = Names(*lookups, aliases, profiles or {}, self._written, self._adapter)
        self._found: dict[str, CatalogEntry] = {}
        self._scanned, self._stale = float("-inf"), False
        self._lock = threading.Lock()

    @classmethod
    def of(
        cls,
        settings: Settings,
        failed: Callable[[CatalogEntry], bool] = lambda entry: False,
        judge: Judge = lambda folder, base: "",
    ) -> Catalog:
        return cls(
            settings.models,
            trust_remote_code=settings.trust_remote_code,
            aliases=settings.aliases,
            profiles=settings.models_of_profiles,
            model_dirs=settings.model_dir,
            default=settings.default,
            allow_downloads=settings.allow_downloads,
            failed=failed,
            judge=judge,
        )

    def entries(self) -> tuple[CatalogEntry, ...]:
        """Return every model, the named ones first; the same objects while no file has changed."""
        return tuple(self._all().values())

    def names(self) -> dict[str, CatalogEntry]:
        """Return the entries by name: models, aliases, then profiles, but neither `default` nor patterns."""
        names = dict(self._all())
        for name, entry in itertools.chain(self._names.further(), self.adapters.entries.items()):
            names.setdefault(name, entry)
        return names

    def find(self, model: str) -> CatalogEntry | Problem:
        """Return the entry of a requested name, or a 404 problem with similar and known names."""
        found = self._names.find(model) or self._of_folder(model)
        if found is not None:
            return found if found.folder is not None else self._downloaded(found)
        if self._allow_downloads and HUB_ID.fullmatch(model):
            return attrs.evolve(entry_of_hub_id(model, None), unlisted=True)
        ids = {name.lower(): name for name in self.names()}
        near = difflib.get_close_matches(model[:200].lower(), ids, n=3)
        known = [entry.id for entry in self.entries()]
        return model_not_found(model[:200], [ids[name] for name in near], known)

    def of_default(self, without: Collection[str] = ()) -> tuple[CatalogEntry, ...]:
        """Return the models of the list `default`: in its order those that may load, then the others."""
        listed = self._all()
        ids = dict.fromkeys(model if model in listed else self._written.get(model) for model in self._default)
        chosen = [listed[model] for model in ids if model in listed and model not in without]
        return tuple(sorted(chosen, key=lambda entry: not self.known.is_usable(entry) or self._failed(entry)))

    def rescan(self) -> None:
        self._stale = True  # without the lock, which a scan holds for long

    def owned(self) -> list[tuple[str, str]]:
        """Return the ids of named models and of those in `model_dir`, each with its folder or `the hub`."""
        named = {entry.folder for entry in self._named}
        in_dirs = [(model, folder) for model, folder in self._dirs.models() if folder not in named]
        found = [*((entry.id, entry.hub_id is None and entry.folder) for entry in self._named), *in_dirs]
        return [(model, f"'{folder}'" if folder else "the hub") for model, folder in found]

    def _all(self) -> dict[str, CatalogEntry]:
        with self._lock:
            now = time.monotonic()
            if self._stale or now - self._scanned > RESCAN_SECONDS:
                self._stale = False
                self._found = self._scan()
                self.adapters.scan([*self._dirs.adapters, *self._cached.adapters], self._found)
                self._scanned = now
            return self._found

    def _entry(self, model: str) -> CatalogEntry | None:
        return self._all().get(model)

    def _adapter(self, name: str) -> CatalogEntry | None:
        self._all()
        return self.adapters.look_up(name)

    def _of_folder(self, name: str) -> CatalogEntry | None:
        """Return the entry of a model by the absolute path of its folder, which Greenroom's commands send."""
        entries = self._all().values() if name.startswith("/") else ()
        return next((entry for entry in entries if entry.hub_id is None and str(entry.folder) == name), None)

    def _of_default(self) -> CatalogEntry | None:
        return next(iter(self.of_default() or self.entries()), None)

    def _downloaded(self, entry: CatalogEntry) -> CatalogEntry:
        """Return an entry with its folder, if its files have come since the last look."""
        found = None if entry.hub_id is None else self._cached.entry(entry.hub_id)
        return entry if found is None else attrs.evolve(found, profile=entry.profile)

    def _scan(self) -> dict[str, CatalogEntry]:
        """Return the entries by id; those of unchanged files are the same objects as before."""
        found: dict[str, CatalogEntry] = {}
        for entry in map(self._now, self._named):
            found.setdefault(entry.id, self._same(entry))
        folders = {entry.folder for entry in found.values()}
        for entry in itertools.chain(self._of_dirs(folders), self._cached.entries()):
            if entry.id not in found and self.known.is_usable(entry):
                found[entry.id] = self._same(entry)
        return found

    def _same(self, entry: CatalogEntry) -> CatalogEntry:
        before = self._found.get(entry.id)
        return before if before == entry and before.stamp == entry.stamp else entry

    def _now(self, entry: CatalogEntry) -> CatalogEntry:
        """Return an entry as its files are now; they may have been downloaded since."""
        if entry.hub_id is not None:
            return self._cached.entry(entry.hub_id) or entry
        assert entry.folder is not None
        return entry_of_folder(entry.folder, entry.id)

    def _of_dirs(self, known: set[Path | None]) -> Iterator[CatalogEntry]:
        return (
            entry_of_folder(folder, model) for model, folder in self._dirs.models() if folder not in known
        )

    def _named_entries(self, models: tuple[str, ...]) -> tuple[CatalogEntry, ...]:
        named: list[CatalogEntry] = []
        for model in models:
            folder = resolve_folder(model)
            ids = {entry.id for entry in named}
            if folder is None and model not in ids:
                named.append(entry_of_hub_id(model, None))
            elif folder is not None and all(entry.folder != folder for entry in named):
                name = DEMO_ID if folder == DEMO_FOLDER else folder.name
                numbered = (f"{name}-{n}" for n in itertools.count(2))
                free = next(name for name in itertools.chain([name], numbered) if name not in ids)
                named.append(entry_of_folder(folder, free))
        return tuple(named)


DEFAULT_ID = "default"  # Alias of the first model

LATEST = ":latest"  # Tag that Ollama clients append to names without a tag

_LONGEST = 200  # Number of a name's characters that are compared with patterns

Lookup = Callable[[str], CatalogEntry | None]


class Names:
    """Resolution of requested names: id, `default`, alias, profile, pattern, and the operator's own spelling.

    Each step looks for the name as it is, then without `:latest`. An alias or a profile means a model, and
    never another alias.

    Args:
        default: Lookup of the model that `default` means.
        written: Ids by the operator's spelling of a model, such as a path.
        adapter: Lookup of an adapter by its id, or by its base's id, a colon, and its short name.
    """

    def __init__(
        self,
        by_id: Lookup,
        default: Callable[[], CatalogEntry | None],
        aliases: Aliases,
        profiles: Mapping[str, str],
        written: Mapping[str, str | None],
        adapter: Lookup = lambda name: None,
    ) -> None:
        self._adapter = adapter
        self._by_id = by_id
        self._default = default
        self._aliases = {name: model for name, model in reversed(aliases) if not is_pattern(name)}
        self._patterns = tuple((name_pattern(name), model) for name, model in aliases if is_pattern(name))
        self._profiles = profiles
        self._written = written

    def find(self, name: str) -> CatalogEntry | None:
        """Return the entry that a requested name means; None if it means nothing."""
        steps: tuple[Lookup, ...] = (
            self._by_id,
            self._of_default,
            self._of_alias,
            self._of_profile,
            self._of_adapter,
            self._of_pattern,
            self._of_written,
        )
        spellings = dict.fromkeys((name, name.removesuffix(LATEST)))
        return next(filter(None, (step(each) for step in steps for each in spellings)), None)

    def further(self) -> Iterable[tuple[str, CatalogEntry]]:
        """Yield the exact aliases in the operator's order, then the profiles, each with its model."""
        listed = dict.fromkeys([*reversed(self._aliases), *self._profiles])
        for name in listed:
            if (entry := self._of_alias(name) or self._of_profile(name)) is not None:
                yield name, entry

    def _model(self, name: str | None) -> CatalogEntry | None:
        return None if name is None else self._base(name) or self._of_adapter(name)

    def _base(self, name: str) -> CatalogEntry | None:
        return self._by_id(name) or self._of_default(name) or self._of_written(name)

    def _of_default(self, name: str) -> CatalogEntry | None:
        entry = self._default() if name == DEFAULT_ID else None
        return None if entry is None else attrs.evolve(entry, by_default=True)

    def _of_adapter(self, name: str) -> CatalogEntry | None:
        """Return the entry of an adapter: its id, or its base's name, a colon, and its short name."""
        if (found := self._adapter(name)) is not None:
            return found
        head, _, tail = name.rpartition(":")
        base = self._of_default(head) or self._base(self._aliases.get(head, ""))
        return None if base is None else self._adapter(f"{base.id}:{tail}")

    def _of_alias(self, name: str) -> CatalogEntry | None:
        return self._model(self._aliases.get(name))

    def _of_profile(self, name: str) -> CatalogEntry | None:
        entry = self._model(self._profiles.get(name))
        return None if entry is None else attrs.evolve(entry, profile=name)

    def _of_pattern(self, name: str) -> CatalogEntry | None:
        fits = (model for pattern, model in self._patterns if pattern.fullmatch(name[:_LONGEST]))
        return self._model(next(fits, None))

    def _of_written(self, name: str) -> CatalogEntry | None:
        model = self._written.get(name)
        return None if model is None else self._by_id(model)


def find_conflict(models: Iterable[tuple[str, str]], aliases: Aliases, profiles: Iterable[str]) -> str | None:
    """Return a sentence, without its full stop, that tells which two things share a name; None if none do.

    A name with `:latest` is the same as one without.
    """
    places: dict[str, str] = {}
    for model, place in models:
        name = model.removesuffix(LATEST)
        if name in places:
            return f"'{name}' is the name of two models, in {places[name]} and in {place}"
        places[name] = place
    kinds = {
        "a model": list(places),
        "an alias": [alias for alias, _ in dict.fromkeys(aliases) if not is_pattern(alias)],
        "a profile": list(profiles),
        "the first model": [DEFAULT_ID],
    }
    names = [(name.removesuffix(LATEST), kind) for kind, listed in kinds.items() for name in listed]
    counted = Counter(name for name, _ in names)
    for name, kind in names:
        if counted[name] > 1:
            others = [other for each, other in names if each == name]
            others.remove(kind)
            if {kind, *others} != {"a model", "the first model"}:  # a folder of that name is not shadowed
                return f"'{name}' is the name of {kind} and of {others[0]}"
    return None
