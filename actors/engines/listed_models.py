"""Models that requests can name, found and described without loading any."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.engines.copied_models import CopiedModels
from greenroom.actors.engines.probed_models import ProbedModels
from greenroom.actors.engines.residences import Residences
from greenroom.schemas.models.capabilities import CapabilityRecord, ProbedCapabilities
from greenroom.schemas.models.memory_need import MemoryNeed, memory_need
from greenroom.schemas.models.model_copy import with_copies
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.models.working_space import WorkingSpace
from greenroom.schemas.problems import Problem, ProblemError, load_failed, not_here
from greenroom.schemas.protocols.pool_protocol import ModelName
from greenroom.schemas.settings.model_settings import given_values
from greenroom.schemas.settings.origins import settings_in_force
from greenroom.schemas.settings.profiles import Profile
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.catalog.catalog import Catalog
    from greenroom.engine.catalog.entries import CatalogEntry
    from greenroom.engine.loading.load_size import LoadSize

_FAILED_SECONDS = 300.0
"""Time after which `default` may again mean a model that could not be loaded."""

_REFUSED_SECONDS = 30.0
"""The same for a model that had no memory, which others may have left by then."""


Limits = tuple[int, int | None]
"""Bytes that all models may have together, and bytes of one that is alone; None for no more than these."""


@attrs.frozen
class _Basis:
    """Everything on which the description of a model depends."""

    entry: CatalogEntry
    probed: ProbedCapabilities | None
    measured: WorkingSpace | None
    limits: Limits

    def is_same(self, other: _Basis) -> bool:
        """Return whether a description still holds; quick, since lists ask for each of their models."""
        entries = self.entry is other.entry or (
            self.entry == other.entry and self.entry.stamp == other.entry.stamp
        )
        found = self.probed is other.probed and self.measured is other.measured
        return entries and found and self.limits == other.limits


@attrs.frozen
class _Described:
    basis: _Basis
    description: ModelDescription


class ListedModels:
    """The models of the catalog, with what is known about each. All methods read the disk.

    Nothing is read twice while a model's files, and the findings of probes about it, stay the same.

    Args:
        probed: Findings of probes; by default there are none.

    Attributes:
        residences: Measured memory of the loaded models.
        copies: Copies of models, which are names beside the profiles of the settings.
        revision: Number of changes of the settings and the copies.
    """

    def __init__(self, settings: Settings, probed: ProbedModels | None = None) -> None:
        self._settings = settings
        self._named = settings  # with copies as profiles
        self.revision = 0
        self.residences = Residences()
        self.copies = CopiedModels()
        self.probed = probed or ProbedModels()
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None
        self._described: dict[str, _Described] = {}
        self._listed: tuple[ModelDescription, ...] = ()
        self._failed: dict[str, tuple[str, float]] = {}

    @property
    def settings(self) -> Settings:
        """Settings in force; those of a model hold from its next opening."""
        return self._settings

    def reload(self, settings: Settings) -> None:
        """Put changed settings of models, names and profiles in force."""
        with self._lock:
            self._settings, self._catalog = settings, None
            self._described, self._listed = {}, ()
            self.revision += 1

    def rename(self) -> None:
        """Put changed copies of models in force."""
        catalog = self._open_catalog()
        with self._lock:
            self._named = with_copies(self._settings, self.copies.known().values())
            catalog.set_profiles(self._named.models_of_profiles)
            self.revision += 1

    @property
    def chooses_default(self) -> bool:
        """True if the meaning of `default` depends on which models could be loaded."""
        return bool(self._settings.default)

    @property
    def model_dirs(self) -> tuple[str, ...]:
        """The operator's folders of models."""
        return self._settings.model_dir

    def rescan(self) -> None:
        """Look at the disk anew with the next question, since models were fetched or deleted."""
        self._open_catalog().rescan()

    def find(self, name: str) -> CatalogEntry | Problem:
        """Return the catalog entry for a model name, or a 404 with similar names."""
        return self._open_catalog().find(name)

    def is_taken(self, name: str) -> bool:
        """Return whether a name, or it with `:latest`, is that of a model, an alias or a profile."""
        from greenroom.engine.catalog.names import DEFAULT_ID, LATEST

        taken = {each.removesuffix(LATEST) for each in self._open_catalog().names()}
        return name in (*taken, DEFAULT_ID)

    def profile_of(self, entry: CatalogEntry) -> Profile:
        """Return the profile by which a model was found, or a new one for the model itself."""
        found = None if entry.profile is None else self._named.all_profiles.get(entry.profile)
        return Profile(model=entry.id) if found is None else attrs.evolve(found, model=entry.id)

    def resolve(self, name: str, without: Sequence[str] = ()) -> ModelName | Problem:
        """Return the meaning of a model name, or a 404 with similar names.

        Args:
            without: Models of the list `default` that were tried in vain for a request: others precede them
                for a while.
        """
        for tried in without:
            self._note_failure(tried, _REFUSED_SECONDS)
        entry = self.find(name)
        if isinstance(entry, Problem):
            return entry
        left = self._open_catalog().of_default(without) if entry.by_default else ()
        model, replaceable = left[0].id if left else entry.id, len(left) > 1
        if entry.profile is None:
            return ModelName(model, listed=not entry.unlisted, replaceable=replaceable)
        profile = self._named.all_profiles.get(entry.profile)
        defaults = {} if profile is None else given_values(profile)  # it may have been deleted just now
        defaults.pop("model", None)
        return ModelName(model, entry.profile, defaults, replaceable=replaceable)

    def describe(self, name: str | None) -> tuple[ModelDescription, ...] | Problem:
        """Return the description of a model, or of all if `name` is None; or a 404 with similar names.

        All are the models, their exact aliases, and the profiles; the same object while nothing has changed.
        """
        limits = self._limits()
        if name is not None:
            entry = self.find(name)
            if isinstance(entry, Problem):
                return entry
            if entry.unlisted:  # only a request that generates may bring it, and nothing is known before
                return not_here(name)
            return (self._describe(entry.profile or entry.id, entry, limits),)
        names = self._open_catalog().names()
        listed = tuple(self._describe(known, entry, limits) for known, entry in names.items())
        with self._lock:
            if len(listed) != len(self._listed) or any(map(_differ, listed, self._listed)):
                self._listed = listed
            return self._listed

    def record_of(self, model: str, detected: CapabilityRecord, folder: Path) -> CapabilityRecord:
        """Return a model's capability record: as probed for these files, else as detected.

        Args:
            model: The model's own id.
            detected: Record that the files suggest.
        """
        from greenroom.engine.catalog.probed_record import with_findings

        return with_findings(detected, self.probed.find(model), folder)

    def note_failure(self, model: str) -> None:
        """Note that a model could not be loaded, which `default` then does not mean while others are left."""
        self._note_failure(model, _FAILED_SECONDS)

    def _note_failure(self, model: str, seconds: float) -> None:
        entry, now = self.find(model), time.monotonic()
        if not isinstance(entry, Problem):
            stamp, until = self._failed.get(entry.id, ("", 0.0))
            later = max(until if stamp == entry.stamp else 0.0, now + seconds)
            self._failed[entry.id] = entry.stamp, later

    def _describe(self, name: str, entry: CatalogEntry, limits: Limits) -> ModelDescription:
        measured = self.residences.measured(entry.id)
        basis = _Basis(entry, self.probed.find(entry.id), measured, limits)
        known = self._described.get(name)
        if known is not None and known.basis.is_same(basis):
            return known.description
        described = attrs.evolve(self._description(entry, limits), id=name)
        self._described[name] = _Described(basis, described)
        return described

    def _description(self, entry: CatalogEntry, limits: Limits) -> ModelDescription:
        from greenroom.engine.catalog.description import describe
        from greenroom.engine.catalog.operator.parsers import with_operators_parsers

        settings = self._settings
        known = describe(entry, settings.trust_remote_code, allow_vision=self._allows_vision(entry.id))
        known = attrs.evolve(known, settings=settings_in_force(self._named, entry.id, entry.profile))
        if known.record is None or entry.folder is None:
            return known
        record = self.record_of(entry.id, known.record, entry.folder)
        chosen = with_operators_parsers(record, settings, entry.id)
        need = self._need(entry.id, entry.folder, record, limits)
        longest = self._settings.applied_to(entry.id).max_context or record.context
        return attrs.evolve(
            known,
            record=attrs.evolve(record, context=min(record.context, longest)),
            parsers=(chosen.tool_parser, chosen.reasoning_parser),
            need=need,
            fits=None if need is None else need.fits and self._may_see(entry.id, entry.folder, known.record),
        )

    def _size(self, model: str, folder: Path, record: CapabilityRecord) -> LoadSize:
        """Return the size of a load; nothing if a weight file is broken, as the load will tell."""
        from greenroom.engine.loading.load_size import LoadSize, load_size, with_measured_working

        settings = self._settings.applied_to(model)
        try:
            size = load_size(folder, record, settings, draft_folder(settings), checked=False)
        except (OSError, ValueError):
            return LoadSize(0)
        return with_measured_working(size, self.residences.working_bytes(model, folder, settings))

    def _need(self, model: str, folder: Path, record: CapabilityRecord, limits: Limits) -> MemoryNeed | None:
        size = self._size(model, folder, record)
        return memory_need(record.model_type, size.total, size.least, *limits) if size.total else None

    def _limits(self) -> Limits:
        """Return the memory that models may have."""
        from greenroom.engine.memory.device_memory import USABLE_SHARE, main_memory

        given, memory = self._settings.memory_bytes, main_memory()
        return (given, None) if given else (int(memory * USABLE_SHARE), memory)

    def _may_see(self, model: str, folder: Path, detected: CapabilityRecord) -> bool:
        """Return False for a model with vision that is too large for this machine."""
        from greenroom.engine.catalog.operator.vision import check_vision
        from greenroom.engine.memory.device_memory import main_memory

        try:
            check_vision(detected, folder, model, self._settings.applied_to(model), main_memory())
        except ProblemError as error:
            return error.problem.status != 507
        return True

    def _allows_vision(self, model: str) -> bool:
        from greenroom.engine.catalog.operator.vision import allows_vision

        return allows_vision(model, self._settings)

    def _has_failed(self, entry: CatalogEntry) -> bool:
        stamp, until = self._failed.get(entry.id, ("", 0.0))
        return stamp == entry.stamp and time.monotonic() < until

    def _open_catalog(self) -> Catalog:
        from greenroom.engine.catalog.catalog import Catalog

        with self._lock:
            if self._catalog is None:
                self._named = with_copies(self._settings, self.copies.known().values())
                self._catalog = Catalog.of(self._named, self._has_failed)
            return self._catalog


def find_present(models: ListedModels, name: str) -> CatalogEntry | Problem:
    """Return a model's entry; look at the disk anew if its folder has been deleted."""
    entry = models.find(name)
    if isinstance(entry, Problem) or entry.folder is None or entry.folder.is_dir():
        return entry
    models.rescan()
    found = models.find(name)
    if isinstance(found, Problem) or found.folder is None or found.folder.is_dir():
        return found
    return load_failed(found.id, "its folder is gone.")  # the operator has named it


def missing_draft(settings: Settings) -> str | None:
    """Return the hub id of a model's draft model that is not on this machine; None if nothing is missing."""
    from greenroom.engine.catalog.entries import resolve_folder

    draft, drafts = settings.draft_model, settings.speculation in (None, "draft")
    if draft is None or not drafts or resolve_folder(draft) is not None:
        return None
    return draft if draft_folder(settings) is None else None


def draft_folder(settings: Settings) -> Path | None:
    """Return the folder of a model's draft model; None if there is none."""
    from greenroom.engine.catalog.entries import local_folder

    drafts = settings.speculation in (None, "draft")
    try:
        return local_folder(settings.draft_model) if settings.draft_model and drafts else None
    except (OSError, ValueError):
        return None


def _differ(one: ModelDescription, other: ModelDescription) -> bool:
    return one is not other
