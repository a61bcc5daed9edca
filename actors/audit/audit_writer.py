"""The task that writes the audit's rows in batches, while no request waits for it."""

from __future__ import annotations

import trio

from greenroom.actors.audit.audit_book import AuditBook
from greenroom.actors.core.ref import Ref
from greenroom.actors.store.answers import StoreMessage, ask_store_or_failed
from greenroom.schemas.audit import AuditRow
from greenroom.schemas.events.events import Failed
from greenroom.schemas.logs import get_logger

log = get_logger(actor="audit")

INTERVAL = 0.5
"""Seconds between two batches."""
BATCH = 1_000
"""Most rows of a transaction."""
PATIENCE = 30.0
"""Longest time in seconds between attempts while the database takes nothing."""
LASTING = ("storage_full", "store_busy", "store_hung", "store_unavailable")
"""Problems that pass, so that the same rows are written again."""


class AuditWriter:
    """Writes the rows of the book to the store.

    While the store accepts none, the latest batch is kept and the book's queue fills; once that is full,
    further rows are dropped and counted.

    Args:
        store: Reference to the store.
        interval: Seconds between two batches; changed only in tests.

    Attributes:
        book: Requests in flight, and the rows that wait.
    """

    def __init__(self, book: AuditBook, store: Ref[StoreMessage], interval: float = INTERVAL) -> None:
        self.book = book
        self._store = store
        self._interval = interval
        self._batch: tuple[AuditRow, ...] = ()
        self._refused = ""
        self._told = 0

    @property
    def waiting(self) -> int:
        """The number of rows that are not written yet."""
        return self.book.waiting + len(self._batch)

    async def run(self) -> None:
        """Write rows until cancelled."""
        pause = self._interval
        while True:
            if not self._batch:
                await self.book.arrived.wait()
            await trio.sleep(pause)
            written = await self._write()
            pause = self._interval if written else min(2 * pause, PATIENCE)
            self._tell_losses()

    async def finish(self, seconds: float) -> None:
        """Write the rows that are left, for at most `seconds`; call it when `run` has ended."""
        with trio.move_on_after(seconds, shield=True):
            while self.waiting and await self._write():
                pass
        if self.waiting:
            log.warning("audit rows lost", rows=self.waiting, reason=self._refused or "the server ends")

    async def _write(self) -> bool:
        """Write a batch; return False if it must be tried again."""
        batch = self._batch = self._batch or self.book.take(BATCH)
        answer = await ask_store_or_failed(self._store, lambda tables: tables.audit.save(batch), writes=True)
        if isinstance(answer, Failed):
            return self._refuse(answer.problem.code, answer.problem.detail)
        if self._refused:
            log.info("audit is written again")
        self._batch, self._refused = (), ""
        return True

    def _refuse(self, code: str, reason: str) -> bool:
        if code != self._refused:
            log.warning("audit not written", problem=code, detail=reason, rows=self.waiting)
        self._refused = code
        if code in LASTING:
            return False
        self.book.lost += len(self._batch)
        self._batch = ()
        return True

    def _tell_losses(self) -> None:
        if self.book.lost > self._told:
            log.warning(
                "audit rows lost", rows=self.book.lost - self._told, reason=self._refused or "overflow"
            )
            self._told = self.book.lost
