"""The LoRA adapters of the catalog: their folders, names and bases, and why some are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import attrs

from greenroom.engine.catalog.folders import AdapterEntry, CatalogEntry, modified_at, resolve_folder
from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG
from greenroom.engine.catalog.model_files import fingerprint, read_json_object
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, load_failed

_MOST_ADAPTERS = 65_536  # Far more than any shelf has, since a scan goes through all in order

Judge = Callable[[Path, Path], str]
"""Function from the folders of an adapter and its base to the reason of a refusal, empty if there is none."""


class CatalogAdapters:
    """The adapters in the operator's folders, each as the entry of its base with its own name.

    Args:
        judge: Compares an adapter with its base.
        record_of: Function that returns a model's record.

    Attributes:
        entries: Entries by the adapters' ids; those whose base is missing have no files.
    """

    def __init__(
        self, judge: Judge, record_of: Callable[[CatalogEntry], CapabilityRecord | Problem | None]
    ) -> None:
        self._judge = lru_cache(maxsize=_MOST_ADAPTERS)(lambda folder, base, *_stamps: judge(folder, base))
        self._record_of = record_of
        self.entries: dict[str, CatalogEntry] = {}
        self._of_base: dict[str, CatalogEntry] = {}
        self._models: Mapping[str, CatalogEntry] = {}

    def scan(self, folders: Iterable[tuple[str, Path]], models: Mapping[str, CatalogEntry]) -> None:
        """Take in the folders of adapters; of unchanged ones no file is read again.

        Args:
            folders: Ids and folders.
            models: Entries of the models by id, whose names come first.
        """
        self._models = models
        found = {name: folder for name, folder in reversed([*folders]) if name not in models}
        self.entries = {name: self._entry(name, found[name]) for name in sorted(found)}
        self._of_base = {f"{each.id}:{_short(name)}": each for name, each in reversed(self.entries.items())}

    def look_up(self, name: str) -> CatalogEntry | None:
        """Return the entry of an adapter by its id, or by its base's id, a colon, and the last part of it."""
        return self.entries.get(name) or self._of_base.get(name)

    def find(self, model: str, name: str, *, paths: bool = False) -> AdapterEntry | None:
        """Return a model's adapter by its id, the last part of it, or its number among the usable ones.

        Args:
            paths: Whether the operator names it, who may give the path of its folder.
        """
        for found in (self.look_up(name), self.look_up(f"{model}:{name}")):
            if found is not None and found.id == model:
                return found.adapter
        known = [entry.adapter for entry in self.entries.values() if entry.id == model and entry.adapter]
        usable = [each for each in known if each.problem is None]
        if name.isascii() and name.isdecimal() and int(name[:9]) < len(usable):
            return usable[int(name[:9])]
        folder, base = resolve_folder(name) if paths else None, self._models.get(model)
        if folder is None or base is None or not (folder / ADAPTER_CONFIG).is_file():
            return None
        return self._entry(folder.name, folder, base).adapter

    def _entry(self, name: str, folder: Path, base: CatalogEntry | None = None) -> CatalogEntry:
        """Return the entry of an adapter.

        Args:
            base: Its base by the operator's word; None for the one that it names.
        """
        stamp, reason, named = fingerprint(folder), f"its {ADAPTER_CONFIG} names no base model", ""
        try:
            named = _name_of_base(folder, stamp)
        except ValueError as error:
            reason = str(error)
        base = base or self._base_of(named)
        if base is not None:
            reason = self._why_refused(folder, stamp, base)
        elif named:
            reason = f"its base model '{named[:100]}' is not here"
        problem = load_failed(name, f"{reason}.") if reason else None
        adapter = AdapterEntry(name, folder, named, stamp, problem)
        return attrs.evolve(base or CatalogEntry(name, None, modified_at(folder)), adapter=adapter)

    def _why_refused(self, folder: Path, stamp: str, base: CatalogEntry) -> str:
        record = self._record_of(base)
        if isinstance(record, CapabilityRecord) and record.model_type not in ("text", "vision"):
            return f"its base is a model for {record.model_type}, which takes no adapters"
        return "" if base.folder is None else self._judge(folder, base.folder, stamp, base.stamp)

    def _base_of(self, named: str) -> CatalogEntry | None:
        """Return the model that an adapter names as its base: by id, folder, or the last part of its name.

        The name is only compared, and never becomes a path.
        """
        entries = self._models.values()
        exact = (each for each in entries if named in (each.id, each.hub_id, str(each.folder)))
        last = _short(named.rstrip("/")).lower()
        return next(exact, None) or next((each for each in entries if _short(each.id).lower() == last), None)


@lru_cache(maxsize=_MOST_ADAPTERS)
def _name_of_base(folder: Path, _stamp: str) -> str:
    config = read_json_object(folder / ADAPTER_CONFIG)
    return str(config.get("base_model_name_or_path") or config.get("model") or "")[:1_000]


def _short(name: str) -> str:
    """Return the last part of an id."""
    return name.rpartition("/")[2]
