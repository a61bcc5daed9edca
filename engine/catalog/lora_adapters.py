"""The LoRA adapters of the catalog: their folders, names and bases, and why some are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from greenroom.engine.catalog.folders import AdapterEntry, CatalogEntry, modified_at, resolve_folder
from greenroom.engine.catalog.load_failures import ADAPTER_CONFIG
from greenroom.engine.catalog.model_files import fingerprint, read_json_object
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import Problem, load_failed

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
        self._judge, self._record_of = judge, record_of
        self.entries: dict[str, CatalogEntry] = {}
        self._models: Mapping[str, CatalogEntry] = {}

    def scan(self, folders: Iterable[tuple[str, Path]], models: Mapping[str, CatalogEntry]) -> None:
        """Take in the folders of adapters; of unchanged ones no file is read again.

        Args:
            folders: Ids and folders.
            models: Entries of the models by id, whose names come first.
        """
        self._models = models
        found: dict[str, CatalogEntry] = {}
        for name, folder in folders:
            if name not in models and name not in found:
                found[name] = self._judged(name, folder)
        self.entries = found

    def of_model(self, model: str) -> tuple[AdapterEntry, ...]:
        """Return the adapters of a model by its id, sorted by their own."""
        found = (entry.adapter for entry in self.entries.values() if entry.id == model and entry.adapter)
        return tuple(sorted(found, key=lambda each: each.id))

    def look_up(self, base: str | None, name: str) -> CatalogEntry | None:
        """Return the entry of an adapter by its id, or by its base's id and the last part of its own."""
        if base is None:
            return self.entries.get(name)
        found = self.entries.items()
        return next((each for key, each in found if each.id == base and _short(key) == name), None)

    def find(self, model: str, name: str, *, paths: bool = False) -> AdapterEntry | None:
        """Return a model's adapter by its id, the last part of it, or its number among the usable ones.

        Args:
            paths: Whether the operator names it, who may give the path of its folder.
        """
        known = self.of_model(model)
        for each in known:
            if name in (each.id, _short(each.id), f"{model}:{_short(each.id)}"):
                return each
        usable = [each for each in known if each.problem is None]
        if name.isascii() and name.isdecimal() and int(name[:9]) < len(usable):
            return usable[int(name[:9])]
        folder, base = resolve_folder(name) if paths else None, self._models.get(model)
        if folder is None or base is None or not (folder / ADAPTER_CONFIG).is_file():
            return None
        return self._judged(folder.name, folder, base).adapter

    def _judged(self, name: str, folder: Path, base: CatalogEntry | None = None) -> CatalogEntry:
        """Return the entry of an adapter.

        Args:
            base: Its base by the operator's word; None for the one that it names.
        """
        stamp = fingerprint(folder)
        before = self.entries.get(name)
        known = None if before is None else before.adapter
        fault = f"its {ADAPTER_CONFIG} names no base model"
        if known is None or known.stamp != stamp or not known.base:
            known, config = None, dict[str, Any]()
            try:
                config = read_json_object(folder / ADAPTER_CONFIG)
            except ValueError as error:
                fault = str(error)
            named = str(config.get("base_model_name_or_path") or config.get("model") or "")
        else:
            named = known.base
        base = base or self._base_of(named)
        if before is not None and known is not None and base is not None:
            same = base.stamp == before.stamp and before == attrs.evolve(base, adapter=known)
            if same:
                return before
        if base is None:
            reason = f"its base model '{named[:100]}' is not here" if named else fault
        else:
            reason = _why_no_base(self._record_of(base))
            if not reason and base.folder is not None:
                reason = self._judge(folder, base.folder)
        problem = load_failed(name, f"{reason}.") if reason else None
        adapter = AdapterEntry(name, folder, named, stamp, problem)
        return attrs.evolve(base or CatalogEntry(name, None, modified_at(folder)), adapter=adapter)

    def _base_of(self, named: str) -> CatalogEntry | None:
        """Return the model that an adapter names as its base: by id, folder, or the last part of its name.

        The name is only compared, and never becomes a path.
        """
        entries = self._models.values()
        exact = (each for each in entries if named in (each.id, each.hub_id, str(each.folder)))
        last = _short(named.rstrip("/")).lower()
        return next(exact, None) or next((each for each in entries if _short(each.id).lower() == last), None)


def _short(name: str) -> str:
    """Return the last part of an id."""
    return name.rpartition("/")[2]


def _why_no_base(record: CapabilityRecord | Problem | None) -> str:
    if isinstance(record, CapabilityRecord) and record.model_type not in ("text", "vision"):
        return f"its base is a model for {record.model_type}, which takes no adapters"
    return ""
