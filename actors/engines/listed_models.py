"""Models that requests can name, found and described without loading any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from operator import is_not
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.engines.residences import ProbedModels, Residences
from greenroom.schemas.messages.requests import AppliedAdapter
from greenroom.schemas.models.capabilities import CapabilityRecord, ProbedCapabilities, WorkingSpace
from greenroom.schemas.models.model_description import MemoryNeed, ModelDescription, memory_need
from greenroom.schemas.problems import (
    Problem,
    ProblemError,
    adapter_not_found,
    load_failed,
    model_not_found,
    not_here,
)
from greenroom.schemas.protocols.pool_protocol import ModelName
from greenroom.schemas.settings.settings import Settings, given_values, settings_in_force

if TYPE_CHECKING:
    from greenroom.engine.catalog.catalog import Catalog
    from greenroom.engine.catalog.folders import AdapterEntry, CatalogEntry
    from greenroom.engine.loading.load_size import LoadSize


Limits = tuple[int, int | None]
"""Bytes that all models may have together, and bytes of one that is alone; None for no more than these."""


@attrs.frozen
class _Basis:
    entry: CatalogEntry
    probed: ProbedCapabilities | None
    measured: WorkingSpace | None
    limits: Limits
    refused: Problem | None = None

    def is_same(self, other: _Basis) -> bool:
        """Return whether a description still holds; quick, since lists ask for each of their models."""
        entries = self.entry is other.entry or (
            self.entry == other.entry and self.entry.stamp == other.entry.stamp
        )
        found = self.probed is other.probed and self.measured is other.measured
        return entries and found and (self.limits, self.refused) == (other.limits, other.refused)


@attrs.frozen
class _Described:
    basis: _Basis
    description: ModelDescription


class ModelList:
    """The models of the catalog, with what is known about each. All methods read the disk.

    Nothing is read twice while a model's files, and the findings of probes about it, stay the same.

    Args:
        limits: Function that returns the memory that models may have; None if no device is known yet.
    """

    def __init__(
        self,
        names: ModelNames,
        probed: ProbedModels,
        residences: Residences,
        limits: Callable[[], Limits | None] = lambda: None,
    ) -> None:
        self._names = names
        self._probed = probed
        self._residences = residences
        self._account_limits = limits
        self._lock = threading.Lock()
        self._described: dict[str, _Described] = {}
        self._listed: tuple[ModelDescription, ...] = ()

    def forget(self) -> None:
        """Describe all models anew, since their settings have changed."""
        with self._lock:
            self._described, self._listed = {}, ()

    def describe(
        self, name: str | None, further: tuple[ModelDescription, ...] = ()
    ) -> tuple[ModelDescription, ...] | Problem:
        """Return the description of a model, or of all if `name` is None; or a 404 with similar names.

        The list of all has models, their exact aliases, profiles, and `further` models, whose names precede
        those of folders; it is the same object while nothing has changed.
        """
        limits = self._limits()
        if name is not None:
            entry = self._names.find(name)
            if isinstance(entry, Problem):
                return entry
            if entry.unlisted:  # only a request that generates may bring it, and nothing is known before
                return not_here(name)
            return (self._describe(entry.name, entry, limits),)
        names = self._names.open_catalog().names()
        taken = {each.id for each in further}
        here = (self._describe(known, entry, limits) for known, entry in names.items() if known not in taken)
        listed = (*here, *further)
        with self._lock:
            if len(listed) != len(self._listed) or any(map(is_not, listed, self._listed)):
                self._listed = listed
            return self._listed

    def record_of(self, model: str, detected: CapabilityRecord, folder: Path) -> CapabilityRecord:
        """Return a model's capability record: as probed for these files, else as detected."""
        from greenroom.engine.catalog.description import with_findings

        return with_findings(detected, self._probed.find(model), folder)

    def _describe(self, name: str, entry: CatalogEntry, limits: Limits) -> ModelDescription:
        described = self._described  # a change of the settings meanwhile makes a new one
        measured = self._residences.measured(entry.id)
        refused = None if entry.adapter is None else self._names.refusal(entry.adapter)
        basis = _Basis(entry, self._probed.find(entry.id), measured, limits, refused)
        known = described.get(name)
        if known is not None and known.basis.is_same(basis):
            return known.description
        description = attrs.evolve(self._description(entry, limits), id=name)
        described[name] = _Described(basis, description)
        return description

    def _description(self, entry: CatalogEntry, limits: Limits) -> ModelDescription:
        from greenroom.engine.catalog.description import describe
        from greenroom.engine.catalog.operator_texts import with_operators_parsers

        if entry.adapter is not None and (refused := self._names.refusal(entry.adapter)) is not None:
            return ModelDescription(
                entry.name,
                entry.created,
                problem=refused,
                folder=str(entry.adapter.folder),
                model="" if entry.folder is None else entry.id,
                is_adapter=True,
            )
        settings = self._names.settings
        known = describe(entry, settings.trust_remote_code, allow_vision=self.allows_vision(entry.id))
        known = attrs.evolve(known, settings=settings_in_force(settings, entry.id, entry.profile))
        if known.record is None or entry.folder is None:
            return known
        record = self.record_of(entry.id, known.record, entry.folder)
        chosen = with_operators_parsers(record, settings, entry.id)
        need, refused = self._judged(entry.id, entry.folder, record, limits)
        longest = self._names.settings.applied_to(entry.id).max_context or record.context
        if entry.adapter is not None:
            from greenroom.engine.catalog.model_files import folder_bytes

            folder = entry.adapter.folder
            known = attrs.evolve(known, is_adapter=True, nbytes=folder_bytes(folder), folder=str(folder))
        return attrs.evolve(
            known,
            record=attrs.evolve(record, context=min(record.context, longest)),
            parsers=(chosen.tool_parser, chosen.reasoning_parser),
            need=need,
            refused=refused,
            fits=None if need is None else need.fits and (refused is None or refused.status != 507),
        )

    def size(self, model: str, folder: Path, record: CapabilityRecord) -> LoadSize:
        """Return the size of a load; nothing if a file of a sound model is broken, as the load will tell.
        Raises ProblemError (503 `load_failed`): weights are missing or broken.
        """
        from greenroom.engine.catalog.load_failures import named_failures
        from greenroom.engine.loading.load_size import LoadSize, load_size, with_measured_working
        from greenroom.engine.loading.weight_files import check_weight_files

        settings = self._names.settings.applied_to(model)
        try:
            if record.model_type not in ("speech", "transcription"):
                with named_failures(folder, model):
                    check_weight_files(folder, checked=False)
            size = load_size(folder, record, settings, draft_folder(settings), checked=False)
            if settings.hosts or settings.parallelism == "tensor":
                from greenroom.engine.ranks.placement import size_here

                size = size_here(folder, record, settings, size, self._limits()[0] or size.total, model)
        except (OSError, ValueError):
            return LoadSize(0)
        return with_measured_working(size, self._residences.working_bytes(model, folder, settings))

    def _judged(
        self, model: str, folder: Path, record: CapabilityRecord, limits: Limits
    ) -> tuple[MemoryNeed | None, Problem | None]:
        from greenroom.engine.catalog.operator_texts import check_vision
        from greenroom.engine.resources.device_memory import main_memory

        need = None
        try:
            size = self.size(model, folder, record)
            if size.total:
                need = memory_need(record.model_type, size.total, size.least, *limits)
            check_vision(record, folder, model, self._names.settings.applied_to(model), main_memory())
        except ProblemError as error:
            return need, error.problem
        return need, None

    def _limits(self) -> Limits:
        if (known := self._account_limits()) is not None:
            return known
        from greenroom.engine.resources.device_memory import USABLE_SHARE, main_memory

        given, memory = self._names.settings.memory_bytes, main_memory()
        return (given, None) if given else (int(memory * USABLE_SHARE), memory)

    def allows_vision(self, model: str) -> bool:
        """Return whether the settings let a model see."""
        from greenroom.engine.catalog.operator_texts import allows_vision

        return allows_vision(model, self._names.settings)


_FAILED_SECONDS = 300.0  # Time after which `default` may again mean a model that could not be loaded

_REFUSED_SECONDS = 30.0  # The same for a model that had no memory, which others may have left by then


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
        self._withdrawn: set[str] = set()

    def reload(self, settings: Settings) -> None:
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

    def resolve(
        self, name: str, without: Sequence[str] = (), adapter: tuple[str, float] | None = None
    ) -> ModelName | Problem:
        """Return the meaning of a model name, or a 404 with similar names.

        Args:
            without: Models of the list `default` that failed to load for this request; for a while, others
                are preferred.
            adapter: Adapter that the request names, with its scale; it precedes that of the model's name, of
                the profile and of the model's settings.
        """
        for tried in without:
            self._note_failure(tried, _REFUSED_SECONDS)
        entry = self.find(name)
        if isinstance(entry, Problem):
            return entry
        left = self.open_catalog().of_default(without) if entry.by_default else ()
        model, replaceable = left[0].id if left else entry.id, len(left) > 1
        profile = self.settings.all_profiles.get(entry.profile) if entry.profile is not None else None
        defaults = {} if profile is None else given_values(profile)  # it may have been deleted just now
        defaults.pop("model", None)
        fixed = defaults.pop("adapter", None) or self.settings.of_model(model).adapter
        applied = self._adapter(model, entry.adapter, adapter, fixed)
        if isinstance(applied, Problem):
            return applied
        found_as = None if entry.name == entry.id else entry.name
        listed = not entry.unlisted
        return ModelName(model, found_as, defaults, listed=listed, replaceable=replaceable, adapter=applied)

    def change_adapter(self, name: str, *, available: bool) -> ModelName | Problem:
        """Let requests apply an adapter, whose folder may be new, or withdraw it; return its meaning."""
        if available:
            self.rescan()
        entry = self.find(name)
        if isinstance(entry, Problem):
            return entry
        if (adapter := entry.adapter) is None:
            return model_not_found(name[:200]) if entry.unlisted else adapter_not_found(name[:200], entry.id)
        (self._withdrawn.discard if available else self._withdrawn.add)(str(adapter.folder))
        problem = adapter.problem if available else None
        return problem or ModelName(entry.id, adapter=AppliedAdapter(adapter.id, str(adapter.folder)))

    def missing_base(self, hub_id: str) -> str | None:
        """Return the hub id of the base of a cached adapter, if that base is not on this machine."""
        from greenroom.engine.catalog.hub.hub_cache import HUB_ID, find_cached_model, hub_cache_folder

        if find_cached_model(hub_id, hub_cache_folder(), adapter=True) is None:
            return None
        self.rescan()
        entry = self.find(hub_id)
        if isinstance(entry, Problem) or entry.adapter is None or entry.folder is not None:
            return None
        base = entry.hub_id or entry.adapter.base
        return base if base != hub_id and HUB_ID.fullmatch(base) else None

    def refusal(self, adapter: AdapterEntry) -> Problem | None:
        """Return the reason why an adapter is refused: its files, or the operator; None if it is not."""
        if adapter.problem is None and str(adapter.folder) in self._withdrawn:
            detail = f"The operator has unloaded the adapter '{adapter.id}'."
            return Problem(404, "adapter_not_found", detail, "model")
        return adapter.problem

    def _adapter(
        self, model: str, named: AdapterEntry | None, asked: tuple[str, float] | None, fixed: object
    ) -> AppliedAdapter | Problem | None:
        """Return the adapter of a request: what it asks for, else that of its name, else the operator's."""
        name, scale = asked or (fixed if named is None else None, 1.0)
        if name is None and named is None:
            return None
        found = named
        if name is not None:
            catalog = self.open_catalog()
            catalog.entries()  # looks through the folders again if that is due
            found = catalog.adapters.find(model, str(name), paths=asked is None)
        if found is None:
            return adapter_not_found(str(name)[:200], model)
        return self.refusal(found) or AppliedAdapter(found.id, str(found.folder), scale)

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
                self._catalog = Catalog.of(self.settings, self._has_failed, why_adapter_refused)
            return self._catalog


def why_adapter_refused(folder: Path, base: Path) -> str:
    """Return the reason why an adapter does not fit a base, as far as their files tell; else empty."""
    from greenroom.engine.lora.files import check_fit, read_header

    try:
        check_fit(read_header(folder, checked=False), base)
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def missing_draft(settings: Settings) -> str | None:
    """Return the hub id of a model's draft model that is not on this machine; None if nothing is missing."""
    from greenroom.engine.catalog.folders import resolve_folder

    draft, drafts = settings.draft_model, settings.speculation in (None, "draft")
    if draft is None or not drafts or resolve_folder(draft) is not None:
        return None
    return draft if draft_folder(settings) is None else None


def draft_folder(settings: Settings) -> Path | None:
    """Return the folder of a model's draft model; None if there is none."""
    from greenroom.engine.catalog.folders import local_folder

    drafts = settings.speculation in (None, "draft")
    try:
        return local_folder(settings.draft_model) if settings.draft_model and drafts else None
    except (OSError, ValueError):
        return None
