"""The capabilities that probes have found, for all threads that open or describe models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from greenroom.schemas.models.capabilities import ProbedCapabilities


class ProbedModels:
    """Probed capabilities by model; all methods may be called on any thread.

    Args:
        read: Reader of the records known before; called once, on the thread that first asks.
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

        Args:
            model: The model's own id.
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
        """Return whether this is the first call for a model."""
        with self._lock:
            first = model not in self._used
            self._used.add(model)
            return first
