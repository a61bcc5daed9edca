"""Entries of the catalog, and the folders that an operator's names of models mean."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from greenroom.engine.catalog import load_failures
from greenroom.engine.catalog.hub.hub_cache import (
    HUB_ID,
    find_cached_model,
    hub_cache_folder,
    list_cached_ids,
    model_folder,
)
from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.catalog.model_files import fingerprint
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, ProblemError

DEMO_ID = "greenroom-demo"
DEMO_FOLDER = Path(__file__).parents[1] / "demo" / "model"


@attrs.frozen
class AdapterEntry:
    """A LoRA adapter that clients can request as a model of its own.

    Args:
        id: Public id.
        folder: Folder of its files.
        base: Name of its base model, as the training program has written it.
        stamp: Fingerprint of its files.
        problem: Reason why it is refused; None if it may be applied.
    """

    id: str
    folder: Path
    base: str = ""
    stamp: str = attrs.field(default="", repr=False)
    problem: Problem | None = None


@attrs.frozen
class CatalogEntry:
    """A model that clients can request.

    Args:
        folder: Folder of its files; None if they are not downloaded yet.
        created: Unix time in seconds of its configuration file.
        hub_id: Hub id to download it from; None for a local folder.
        stamp: Fingerprint of its files; empty if they are not downloaded yet.
        profile: Name of the profile through which it was found; None for the model itself.
        unlisted: True if a request named it, and no operator.
        by_default: True if it was found as the model that `default` means.
        adapter: Adapter through whose name it was found; None for the model itself.
    """

    id: str
    folder: Path | None
    created: int = 0
    owned_by: str = "greenroom"
    hub_id: str | None = None
    stamp: str = attrs.field(default="", eq=False, repr=False)
    profile: str | None = None
    unlisted: bool = False
    by_default: bool = attrs.field(default=False, eq=False, repr=False)
    adapter: AdapterEntry | None = None

    @property
    def name(self) -> str:
        """Name by which it was found: that of a profile or an adapter, else its id."""
        return self.profile or (self.adapter.id if self.adapter is not None else self.id)


def entry_of_folder(folder: Path, model: str) -> CatalogEntry:
    owner = model.partition("/")[0] if "/" in model else "greenroom"
    return CatalogEntry(model, folder, modified_at(folder), owner, stamp=fingerprint(folder))


def entry_of_hub_id(hub_id: str, folder: Path | None, stamp: str | None = None) -> CatalogEntry:
    """Return the entry of a model from the hub. `stamp`: fingerprint of its files, if it is known already."""
    created = modified_at(folder) if folder is not None else 0
    if stamp is None:
        stamp = fingerprint(folder) if folder is not None else ""
    return CatalogEntry(hub_id, folder, created, hub_id.partition("/")[0], hub_id, stamp)


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


def modified_at(folder: Path) -> int:
    """Return the Unix time in seconds of a model's configuration; 0 if there is none."""
    try:
        return max(0, int((folder / "config.json").stat().st_mtime))
    except OSError:
        return 0


log = get_logger(__name__)

MAX_FOLDERS = 5_000  # Maximum number of folders to look into; more are no folders of models


class ModelDirs:
    """The folders with a config.json within the operator's folders; faults are warned of once.

    Attributes:
        adapters: Id and folder of each adapter that the last look has found.
    """

    def __init__(self, dirs: Sequence[str] = ()) -> None:
        self._dirs = tuple(Path(os.path.abspath(Path(path).expanduser())) for path in dirs)
        self._warned: set[Path] = set()
        self.adapters: list[tuple[str, Path]] = []

    def models(self) -> list[tuple[str, Path]]:
        """Return the id and the folder of each model, sorted by name within each folder.

        A model that is found twice, as through a link, is listed once. Folders of adapters are noted.
        """
        found: list[tuple[str, Path]] = []
        self.adapters = []
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
            elif (folder / load_failures.ADAPTER_CONFIG).is_file():
                self.adapters.append((name, folder))

    def _folders_of_models(self, top: Path) -> Iterator[tuple[str, Path]]:
        """Yield folders that may hold a model, with its id; an owner's only if the owner is no model."""
        for owner in self._folders_in(top, top):
            yield owner.name, owner
            if not (owner / "config.json").is_file():
                inner = self._folders_in(owner, top)
                yield from ((f"{owner.name}/{folder.name}", folder) for folder in inner)

    def _folders_in(self, folder: Path, top: Path) -> list[Path]:
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


class KnownFolders:
    """The capability records that the files of model folders suggest, kept until the files change."""

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


_HALF_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of half a hub id: the owner or the name alone."""


def why_no_model(model: str) -> str | None:
    """Return the reason why a folder that an operator named holds no model.

    Returns:
        A sentence without its full stop; None for hub ids, and for folders with a config.json.
    """
    folder = resolve_folder(model)
    if folder is None or (folder / "config.json").is_file():
        return None
    if folder.is_dir():
        return f"'{model}' holds no model: {load_failures.why_no_model(folder)}"
    if folder.exists():
        return f"'{model}' is a file, and a model is a folder with a config.json"
    hint = " (a hub id is OWNER/NAME)" if _HALF_HUB_ID.fullmatch(model) else ""
    return f"there is no folder '{model}' with a config.json{hint}"


class CachedModels:
    """The hub's cache folder, with the models that the last scan has found in it.

    Attributes:
        adapters: Id and folder of each adapter that the last scan has found.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._known: dict[str, tuple[str, CatalogEntry | None]] = {}
        self.adapters: list[tuple[str, Path]] = []

    def entries(self) -> Iterator[CatalogEntry]:
        """Yield the entries of the complete models, sorted by id; of an unchanged model no file is read."""
        self.adapters = []
        for hub_id in list_cached_ids(self._cache):
            entry = self.entry(hub_id)
            if entry is not None:
                yield entry
            elif (folder := find_cached_model(hub_id, self._cache, adapter=True)) is not None:
                self.adapters.append((hub_id, folder))

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
