"""Models that requests can name, found and described without loading any."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.engines.probed_models import ProbedModels
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.models.model_description import ModelDescription
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.pool_protocol import ModelCard
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.catalog.catalog import Catalog, CatalogEntry


class ListedModels:
    """The models of the catalog, with what is known about each. All methods read the disk.

    Args:
        probed: Findings of probes; by default there are none.
    """

    def __init__(self, settings: Settings, probed: ProbedModels | None = None) -> None:
        self._settings = settings
        self.probed = probed or ProbedModels()
        self._lock = threading.Lock()
        self._catalog: Catalog | None = None

    def find(self, name: str) -> CatalogEntry | Problem:
        """Return the catalog entry for a model name, or a 404 with similar names."""
        return self._open_catalog().find(name)

    def find_card(self, name: str) -> ModelCard | Problem:
        """Return the model card for a model name, or a 404 with similar names."""
        entry = self.find(name)
        if isinstance(entry, Problem):
            return entry
        return self._card(entry.id, entry)

    def describe(self, name: str | None) -> tuple[ModelDescription, ...] | Problem:
        """Return the description of a model, or of all if `name` is None; or a 404 with similar names."""
        from greenroom.engine.catalog.description import describe

        found = self._open_catalog().names() if name is None else self.find(name)
        if isinstance(found, Problem):
            return found
        named = found if isinstance(found, dict) else {found.id: found}
        trust = self._settings.trust_remote_code
        entries = {entry.id: entry for entry in named.values()}
        described = {
            ident: self._described(describe(entry, trust, allow_vision=self._allows_vision(ident)))
            for ident, entry in entries.items()
        }
        return tuple(attrs.evolve(described[entry.id], id=known) for known, entry in named.items())

    def cards(self) -> tuple[ModelCard, ...]:
        """Return a card for every available name: the models, then their exact aliases."""
        names = self._open_catalog().names()
        return tuple(itertools.starmap(self._card, names.items()))

    def _card(self, name: str, entry: CatalogEntry) -> ModelCard:
        from greenroom.engine.catalog.description import known_of

        trust = self._settings.trust_remote_code
        record, supports_reasoning = known_of(entry, trust, allow_vision=self._allows_vision(entry.id))
        if record is not None and entry.folder is not None:
            record = self.record_of(entry.id, record, entry.folder)
        return ModelCard(name, entry.created, entry.owned_by, record, supports_reasoning)

    def _described(self, known: ModelDescription) -> ModelDescription:
        if known.record is None or known.folder is None:
            return known
        return attrs.evolve(known, record=self.record_of(known.id, known.record, Path(known.folder)))

    def record_of(self, model: str, detected: CapabilityRecord, folder: Path) -> CapabilityRecord:
        """Return a model's capability record: as probed for these files, else as detected.

        Args:
            model: The model's own id.
            detected: Record that the files suggest.
        """
        from greenroom.engine.catalog.probed_record import with_findings

        return with_findings(detected, self.probed.find(model), folder)

    def _allows_vision(self, model: str) -> bool:
        from greenroom.engine.catalog.operator.vision import allows_vision

        return allows_vision(model, self._settings)

    def _open_catalog(self) -> Catalog:
        from greenroom.engine.catalog.catalog import Catalog

        with self._lock:
            if self._catalog is None:
                settings = self._settings
                self._catalog = Catalog(
                    settings.models,
                    trust_remote_code=settings.trust_remote_code,
                    aliases=settings.aliases,
                )
            return self._catalog
