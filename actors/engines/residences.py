"""The measured memory of the loaded models, and of their last loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.schemas.logs import get_logger

if TYPE_CHECKING:
    from greenroom.engine.memory.account import MemoryAccount
    from greenroom.engine.memory.residence import Residence

log = get_logger()


class Residences:
    """The measurements by the models' own ids; each is used on its model's thread alone."""

    def __init__(self) -> None:
        self._residences: dict[str, Residence] = {}
        self._working: dict[str, int] = {}

    def begin(self, model: str, account: MemoryAccount) -> Residence:
        """Return new measurements for a model that is about to be loaded."""
        from greenroom.engine.memory.residence import Residence

        residence = self._residences[model] = Residence(account)
        return residence

    def of(self, model: str) -> Residence | None:
        """Return the measurements of a loaded model; None if nothing is measured."""
        return self._residences.get(model)

    def working_bytes(self, model: str) -> int | None:
        """Return the working space measured at a model's last load; None before its first."""
        return self._working.get(model)

    def release_caches(self, model: str, engine: Engine[Any]) -> int:
        """Release an engine's caches on its thread; return the bytes that this freed."""
        residence = self.of(model)
        if residence is None:
            engine.release_caches()
        return 0 if residence is None else residence.measure(engine.release_caches)

    def end(self, model: str) -> int | None:
        """Measure, log and return the bytes that an unload has freed; None if nothing is measured.

        Call it on the model's thread when nothing refers to the engine any more.
        """
        residence = self._residences.pop(model, None)
        if residence is None:
            return None
        if residence.working is not None:
            self._working[model] = residence.working
        freed = residence.end()
        figures = {"expected": freed.expected, "freed": freed.nbytes, "measured": freed.measured}
        if freed.held:
            log.warning("memory not freed", actor="model", model=model, held=freed.held, **figures)
        else:
            log.info("memory freed", actor="model", model=model, **figures)
        return freed.nbytes
