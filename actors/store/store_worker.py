"""The thread that uses the database, and its replacement when it hangs or panics."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.store.database.problems import store_given_up, store_hung, store_overloaded
from greenroom.actors.store.open_database import DatabaseOpener
from greenroom.actors.store.store_loop import Job, StoreLoop, StoreLoopEnded
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, internal_error

log = get_logger()

MAX_HUNG = 3
"""Maximum number of hung threads before no more are started."""
MAX_WAITING = 1024
"""Maximum number of waiting messages, whose contents stay in memory."""


@attrs.frozen(eq=False)
class StoreOutcome:
    """The outcome of a borrowed thread, for `StoreWorker.record` in the actor's own task."""

    loop: StoreLoop
    outcome: StoreLoopEnded | JobCrashed | WorkerSilent


class StoreWorker:
    """The store's thread, at most one at a time, borrowed for the first message.

    If a thread is lost, its current message fails, and the next thread answers the remaining messages after
    opening the database itself.

    Args:
        control: Control channel that receives the threads' reports.
    """

    def __init__(self, opener: DatabaseOpener, workers: Workers, control: Control[Any]) -> None:
        self._opener = opener
        self._workers = workers
        self._control = control
        self._loop: StoreLoop | None = None
        self._jobs: set[Job] = set()

    @property
    def hung(self) -> int:
        """Number of hung threads that have not ended."""
        return self._workers.hung("store").total()

    @property
    def problem(self) -> Problem | None:
        """Reason why no more threads are started; None if they are."""
        return store_given_up(self.hung) if self.hung >= MAX_HUNG else None

    @property
    def active(self) -> bool:
        """True if there is a thread."""
        return self._loop is not None

    def put(self, job: Job) -> None:
        """Queue a message to be answered."""
        if len(self._jobs) >= MAX_WAITING:
            job.reply.fail(store_overloaded(len(self._jobs)))
            return
        if self._loop is None:
            self._start()
        if self._loop is None:
            job.reply.fail(self.problem or internal_error())
            return
        self._jobs.add(job)
        self._loop.put(job)

    def record_answered(self, job: Job) -> None:
        """Record that a message has been answered."""
        self._jobs.discard(job)

    def end(self) -> None:
        """End the thread after the queued messages."""
        if self._loop is not None:
            self._loop.end()

    def record(self, ended: StoreOutcome) -> None:
        """Record a thread's outcome, and replace a lost thread."""
        loop = ended.loop
        if loop is not self._loop:  # it was replaced before
            return
        self._loop = None
        match ended.outcome:
            case JobCrashed():
                self._replace(loop, internal_error())
            case WorkerSilent(seconds):
                self._replace(loop, store_hung(seconds))

    def _start(self) -> None:
        if self.problem is not None:
            return
        loop = self._loop = StoreLoop(self._opener, self._control.send_from_thread)

        def report(outcome: StoreLoopEnded | JobCrashed | WorkerSilent) -> None:
            self._control.send(StoreOutcome(loop, outcome))

        self._workers.lend("store", loop.run, report)

    def _replace(self, lost: StoreLoop, problem: Problem) -> None:
        waiting = lost.abandon()
        self._jobs.clear()
        if lost.in_hand is not None:
            lost.in_hand.reply.fail(problem)
        for job in waiting:
            job.steps = None
            self.put(job)
