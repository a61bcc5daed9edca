"""The job of the store's worker, whose connection no other thread uses."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import attrs

from greenroom.actors.core.heartbeat import Heartbeat
from greenroom.actors.core.reply import Reply
from greenroom.actors.store.answers import Result, Run, StoreMessage, name_of
from greenroom.actors.store.database.connection import BUSY_TIMEOUT, TransactionAbandoned
from greenroom.actors.store.database.database_file import UnusableDatabase
from greenroom.actors.store.database.problems import find_problem, unwritable_text
from greenroom.actors.store.open_database import DatabaseOpener, OpenStore
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed, Pruned

Answer = Result | Committed | Pruned | Problem

log = get_logger()


@attrs.define(eq=False)
class Job:
    """A message to answer, with its remaining steps if it takes several.

    Args:
        asked: Arrival time, by `time.monotonic()`.
    """

    message: StoreMessage
    reply: Reply
    steps: Iterator[Pruned | None] | None = None
    asked: float = attrs.field(factory=time.monotonic)

    @property
    def wanted(self) -> bool:
        """True if it must be executed: a write always, a read only while its client waits."""
        return self.writes or not self.reply.closed

    @property
    def writes(self) -> bool:
        """True if it begins a transaction."""
        return isinstance(self.message, CheckStoring) or (
            isinstance(self.message, Run) and self.message.writes
        )

    @property
    def patience(self) -> float:
        """Seconds to wait for another process that writes, less the time that the job has already waited."""
        waited = time.monotonic() - self.asked
        return 0.0 if isinstance(self.message, CheckStoring) else max(0.0, BUSY_TIMEOUT - waited)


@attrs.frozen(eq=False)
class Answered:
    """The answer of a job; None if nobody waited for it."""

    job: Job
    answer: Answer | None


@attrs.frozen
class DatabaseChanged:
    """The report that the database has been opened, or that it cannot be used because of `problem`."""

    problem: Problem | None


@attrs.frozen
class StoreLoopEnded:
    """The end of the loop, with its connection closed."""


StoreReport = Answered | DatabaseChanged


class StoreLoop:
    """A job that answers messages until told to end.

    All public methods may be called on any thread.

    Args:
        opener: Opener of the database, for the first job and after an error.
        report: Callback for reports, on this thread; must not block.

    Attributes:
        in_hand: Job in progress; None if there is none.
    """

    def __init__(self, opener: DatabaseOpener, report: Callable[[StoreReport], None]) -> None:
        self.in_hand: Job | None = None
        self._opener = opener
        self._report = report
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._abandoned = False
        self._open: OpenStore | None = None

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def end(self) -> None:
        """Close the database after the queued jobs."""
        self._jobs.put(None)

    def abandon(self) -> list[Job]:
        """Prevent the current job from changing anything, should it ever end; return the queued jobs."""
        self._abandoned = True
        waiting = self._take_all()
        for job in waiting:
            job.steps = None
        self.end()
        return waiting

    def run(self, heartbeat: Heartbeat) -> StoreLoopEnded:
        """Run the jobs, sending heartbeats. A BaseException that is no Exception ends the loop.

        Raises:
            BaseException: A library has panicked; the connection must not be used again.
        """
        try:
            while (job := self._next(heartbeat)) is not None:
                self.in_hand = job
                answer = self._do(job) if job.wanted else None
                self.in_hand = None
                if answer is None and job.steps is not None and job.wanted:
                    self._jobs.put(job)
                else:
                    self._report(Answered(job, answer))
                del job, answer
            for job in self._take_all():
                self._report(Answered(job, draining()))
            if not self._abandoned:
                self._opener.close(self._open)
                self._open = None
        finally:
            self._close()
        return StoreLoopEnded()

    def _next(self, heartbeat: Heartbeat) -> Job | None:
        heartbeat.pause()
        job = self._jobs.get()
        heartbeat.beat()
        return job

    def _do(self, job: Job) -> Answer | None:
        try:
            return self._answer(self._opened(job.patience), job)
        except ProblemError as error:
            return error.problem
        except UnicodeEncodeError:
            return unwritable_text()
        except TransactionAbandoned:
            return None
        except (sqlite3.Error, UnusableDatabase, OSError) as error:
            return self._fail(error)
        except Exception:
            log.exception("message failed", actor="store", message=name_of(job.message))
            return internal_error()

    def _answer(self, store: OpenStore, job: Job) -> Answer | None:
        if isinstance(job.message, Run | CheckStoring):
            return store.tables.answer(job.message)
        if job.steps is None:
            job.steps = store.prune()
        done = next(job.steps)
        if done is not None:
            job.steps = None
        return done

    def _opened(self, patience: float) -> OpenStore:
        if self._open is not None and self._open.moved:
            log.warning("database replaced", actor="store")
            self._close()
        if self._open is None:
            self._open = self._opener.open(lambda: self._abandoned, patience)
            self._report(DatabaseChanged(None))
        self._open.wait_for_others(patience)
        return self._open

    def _fail(self, error: sqlite3.Error | UnusableDatabase | OSError) -> Problem:
        problem = find_problem(error)
        if problem.code == "store_unavailable":
            # An operator may repair the database; the next job opens it again.
            log.error("database failed", actor="store", reason=str(error))
            self._close()
            self._report(DatabaseChanged(problem))
        elif problem.status >= 500:
            log.warning("database failed", actor="store", reason=str(error))
        return problem

    def _close(self) -> None:
        store, self._open = self._open, None
        if store is not None:
            with contextlib.suppress(sqlite3.Error):
                store.close()

    def _take_all(self) -> list[Job]:
        taken: list[Job] = []
        try:
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    taken.append(job)
        except Empty:
            return taken
