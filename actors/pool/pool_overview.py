"""Questions about all models of the pool, answered without a change."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.actors.pool.ledger import Ledger
from greenroom.schemas.protocols.pool_protocol import ModelStatus


class PoolOverview:
    """The answers to questions about all models.

    Args:
        ledger: State and records of the models.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def waiting(self) -> bool:
        """True if any request waits."""
        return any(record.use.waiting for record in self._ledger.records)

    @property
    def busy(self) -> bool:
        """True if any request waits for a model, holds a lease, or uses a model without its weights."""
        return any(record.in_use for record in self._ledger.records)

    def statuses(self, hung_threads: Mapping[str, int]) -> tuple[ModelStatus, ...]:
        """Return the status of every model for operators.

        Args:
            hung_threads: Number of hung threads that have not ended, by model.
        """
        records = self._ledger.records
        return tuple(record.status(hung_threads.get(str(record.key), 0)) for record in records)

    @property
    def next_expiry(self) -> float | None:
        """Time, by `time.monotonic()`, at which the next idle model is to be unloaded; None if none is."""
        return self._ledger.next_expiry
