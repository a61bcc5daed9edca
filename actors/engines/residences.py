"""The measured memory of the loaded models, and of their last loads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.actors.engines.engine_protocol import Engine
from greenroom.schemas.logs import get_logger
from greenroom.schemas.models.capabilities import ProbedCapabilities, WorkingSpace
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from greenroom.engine.resources.memory_account import MemoryAccount
    from greenroom.engine.resources.residence import Residence


log = get_logger()


class Residences:
    """The measurements by the models' own ids; each is used on its model's thread alone."""

    def __init__(self) -> None:
        self._residences: dict[str, Residence] = {}
        self._stamps: dict[str, str] = {}
        self._working: dict[str, WorkingSpace] = {}
        self._lock = threading.Lock()
        self._read: Callable[[], Iterable[WorkingSpace]] = tuple
        self._save: Callable[[WorkingSpace], None] = lambda measured: None

    def connect(
        self,
        read: Callable[[], Iterable[WorkingSpace]],
        save: Callable[[WorkingSpace], None] = lambda measured: None,
    ) -> None:
        """Keep the measured working space outside of this process.

        Args:
            read: Reader of what was measured before; called once, on the thread that first asks.
            save: Function that takes a new measurement; called on any thread, it must not block. By default
                nothing is kept.
        """
        self._read, self._save = read, save

    def begin(self, model: str, folder: Path, settings: Settings, account: MemoryAccount) -> Residence:
        """Return new measurements for a model that is about to be loaded."""
        from greenroom.engine.resources.residence import Residence

        self._stamps[model] = _stamp(folder, settings)
        residence = self._residences[model] = Residence(account)
        return residence

    def of(self, model: str) -> Residence | None:
        return self._residences.get(model)

    def working_bytes(self, model: str, folder: Path, settings: Settings) -> int | None:
        """Return the working space measured at a model's last load; None before its first.

        A measurement with other model files, another batch size or another dtype does not count.
        The first call may read the disk.
        """
        measured = self.measured(model)
        return measured.nbytes if measured and measured.stamp == _stamp(folder, settings) else None

    def measured(self, model: str) -> WorkingSpace | None:
        """Return the latest measurement of a model, whatever its files are now; None before its first load.

        The first call may read the disk.
        """
        with self._lock:
            known, self._read = self._read(), tuple
            self._working = {each.model_id: each for each in known} | self._working
            return self._working.get(model)

    def note(self, model: str) -> None:
        """Store the working space measured so far, since the process may end before the next unload."""
        residence, known = self._residences.get(model), self._working.get(model)
        if residence is None or residence.working is None:
            return
        stamp = self._stamps[model]
        if known is None or known.stamp != stamp or residence.working > known.nbytes:
            self._record(WorkingSpace(model, residence.working, stamp))

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
            self._record(WorkingSpace(model, residence.working, self._stamps[model]))
        freed = residence.end()
        figures = {"expected": freed.expected, "freed": freed.nbytes, "measured": freed.measured}
        if freed.held:
            log.warning("memory not freed", actor="model", model=model, held=freed.held, **figures)
        else:
            log.info("memory freed", actor="model", model=model, **figures)
        return freed.nbytes

    def _record(self, measured: WorkingSpace) -> None:
        with self._lock:
            if self._working.get(measured.model_id) == measured:
                return
            self._working[measured.model_id] = measured
        self._save(measured)


def _stamp(folder: Path, settings: Settings) -> str:
    from greenroom.engine.catalog.model_files import fingerprint

    return f"{fingerprint(folder)} {settings.dtype} {settings.kv_bits} {settings.max_batch} {settings.device}"


class ProbedModels:
    """Probed capabilities by model; all methods may be called on any thread. `read`: reader of the records
    known before; called once, on the thread that first asks.
    """

    def __init__(self, read: Callable[[], Iterable[ProbedCapabilities]] = tuple) -> None:
        self._read: Callable[[], Iterable[ProbedCapabilities]] | None = read
        self._records: dict[str, ProbedCapabilities] = {}
        self._used: set[str] = set()
        self._lock = threading.Lock()

    def find(self, model: str) -> ProbedCapabilities | None:
        """Return the last probe's findings about a model; None if it was never probed.

        Whether they still apply depends on the model's files (`with_findings`). The first call may read the
        disk.
        """
        with self._lock:
            if self._read is not None:
                known, self._read = self._read(), None
                self._records = {record.model_id: record for record in known} | self._records
            return self._records.get(model)

    def record(self, findings: ProbedCapabilities) -> None:
        with self._lock:
            self._records[findings.model_id] = findings

    def note_use(self, model: str) -> None:
        """Record a use of a model, so that `is_first_use` returns False from now on."""
        self.is_first_use(model)

    def is_first_use(self, model: str) -> bool:
        with self._lock:
            first = model not in self._used
            self._used.add(model)
            return first


class HeldPrefixes:
    """The held memory of a system's account.

    Attributes:
        account: Account of the system; None before the first load.
    """

    def __init__(self) -> None:
        self.account: MemoryAccount | None = None
        self._folders: dict[str, Path] = {}

    def begin(self, model: str, folder: Path, account: MemoryAccount) -> None:
        """Record a model's folder, by which it owns its prefixes, when a load begins."""
        self.drop_deleted()
        self.account, self._folders[model] = account, folder

    def drop_deleted(self) -> None:
        """Drop the held prefixes of models whose folders were deleted; checks the folders of all loads so
        far."""
        for model, folder in list(self._folders.items()):
            if not folder.is_dir():
                self.drop(model)

    def nbytes(self) -> int:
        """Return the bytes held for all models, without waiting."""
        return 0 if self.account is None else self.account.held.nbytes

    def drop(self, model: str) -> int:
        """Drop a model's held prefixes, and hold none at its next unload; return the bytes at once."""
        folder, account = self._folders.get(model), self.account
        if account is None or folder is None:
            return 0
        dropped = account.held.refuse(str(folder))
        nbytes = sum(piece.nbytes for piece in dropped)
        if nbytes:  # the system takes 30 ms per GB
            threading.Thread(target=dropped.clear, name="prefixes dropped", daemon=True).start()
        return nbytes

    def release(self) -> int:
        return 0 if self.account is None else self.account.held.drop_all()
