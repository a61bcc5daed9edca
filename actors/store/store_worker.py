"""The thread that uses the database, and its replacement when it hangs or panics."""

from __future__ import annotations

from typing import Any

from greenroom.actors.core.ref import Control
from greenroom.actors.core.supervised_worker import MAX_HUNG, SupervisedWorker
from greenroom.actors.core.worker import Workers
from greenroom.actors.store.database.problems import store_given_up, store_hung, store_overloaded
from greenroom.actors.store.open_database import DatabaseOpener
from greenroom.actors.store.store_loop import Job, StoreLoop
from greenroom.schemas.problems import Problem, internal_error

MAX_WAITING = 1024
"""Maximum number of waiting messages, whose contents stay in memory."""


class StoreWorker(SupervisedWorker[StoreLoop, Job]):
    """The store's thread, borrowed for the first message; each thread opens the database itself."""

    purpose = "store"

    def __init__(self, opener: DatabaseOpener, workers: Workers, control: Control[Any]) -> None:
        super().__init__(workers, control)
        self._opener = opener
        self._jobs: set[Job] = set()

    @property
    def problem(self) -> Problem | None:
        """Reason why no more threads are started; None if they are."""
        return store_given_up(self.hung) if self.hung >= MAX_HUNG else None

    def put(self, work: Job) -> bool:
        """Queue a message to be answered; return False if it has failed instead."""
        if len(self._jobs) >= MAX_WAITING:
            work.reply.fail(store_overloaded(len(self._jobs)))
            return False
        if not super().put(work):
            work.reply.fail(self.problem or internal_error())
            return False
        self._jobs.add(work)
        return True

    def record_answered(self, job: Job) -> None:
        self._jobs.discard(job)

    def _open_loop(self) -> StoreLoop:
        return StoreLoop(self._opener, self._control.send_from_thread)

    def _crash_problem(self, reason: str) -> Problem:
        return internal_error()

    def _on_silent(self, loop: StoreLoop, seconds: float) -> None:
        self._replace(loop, store_hung(seconds))

    def _restart(self, waiting: list[Job]) -> None:
        self._jobs.clear()
        super()._restart(waiting)
