"""The job of the store's worker, whose connection no other thread uses."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker_thread import Heartbeat
from greenroom.actors.store.connection import BUSY_TIMEOUT, Connection, TransactionAbandoned
from greenroom.actors.store.database_file import MEMORY, ServerLock, UnusableDatabase
from greenroom.actors.store.problems import find_problem, unwritable_text
from greenroom.actors.store.tables import Result, Run, StoreMessage, Tables, name_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, draining, internal_error
from greenroom.schemas.protocols.store_protocol import CheckStoring, Committed, Pruned
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from sqlite_utils import Database


Answer = Result | Committed | Pruned | Problem

log = get_logger()


@attrs.define(eq=False)
class Job:
    """A message to answer, with its remaining steps in an open `store` if it takes several. `asked`: arrival
    time, by `time.monotonic()`.
    """

    message: StoreMessage
    reply: Reply
    steps: Iterator[Pruned | None] | None = None
    store: OpenStore | None = None
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
        """Run the jobs, sending heartbeats. A BaseException that is no Exception ends the loop. Raises
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
        if job.steps is None or job.store is not store:  # a failed store was closed meanwhile
            job.steps, job.store = store.prune(), store
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


@attrs.frozen(eq=False)
class OpenStore:
    """An open database with its operations. `keys`: connection to the database of the keys, which is a file's
    even where all else is in memory.
    """

    connection: Connection
    keys: Connection
    tables: Tables

    @property
    def moved(self) -> bool:
        """True if the file at its path has been replaced or deleted."""
        return self.keys.moved

    def wait_for_others(self, seconds: float) -> None:
        """Wait so long from now for another process that writes."""
        self.connection.wait_for_others(seconds)
        self.keys.wait_for_others(seconds)

    def close(self) -> None:
        self.connection.close()
        self.keys.close()

    def prune(self) -> Iterator[Pruned | None]:
        """Run maintenance in steps; yield None after each, and finally the numbers of deleted objects."""
        yield from self.tables.audit.prune()
        retention = self.tables.retention()
        for _ in retention.steps():
            yield None
        if retention.pruned != Pruned():
            log.info("pruned", actor="store", **attrs.asdict(retention.pruned))
        yield retention.pruned


class DatabaseOpener:
    """An opener of a server's database, for its first use and after a failure of its thread or file.

    Args:
        database: Database, as for `Connection`.

    Attributes:
        deadline: Time by `time.monotonic()` after which nothing waits for another process that writes.
    """

    def __init__(self, database: str | Database | sqlite3.Connection, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._boot = uuid.uuid4().hex
        self._lock: ServerLock | None = None
        self._is_taken = False
        self.deadline = math.inf

    def open(self, is_abandoned: Callable[[], bool], busy_timeout: float = BUSY_TIMEOUT) -> OpenStore:
        """Open the database, and fail what a server that had it before left unfinished.

        While another server has the database, only its keys are used; all else is in memory, until this
        server ends.

        Args:
            is_abandoned: Callback before each commit that returns whether to roll back instead.
            busy_timeout: Seconds to wait for another process that writes.

        Raises:
            UnusableDatabase: The database cannot be opened.
            sqlite3.Error: The database cannot be opened.
            OSError: The database cannot be opened.
        """
        connection = keys = Connection(self._database, is_abandoned, busy_timeout, lambda: self.deadline)
        try:
            if connection.path is not None and not self._owns(connection.path):
                connection = Connection(MEMORY, is_abandoned, busy_timeout, lambda: self.deadline)
            tables = Tables(connection, self._boot, self._settings, keys)
            log.info("database opened", actor="store", path=str(connection.path or "in memory"))
            if failed := tables.responses.fail_unfinished():
                log.warning("responses of a stopped server failed", actor="store", responses=failed)
        except BaseException:
            connection.close()
            keys.close()
            raise
        return OpenStore(connection, keys, tables)

    def close(self, store: OpenStore | None) -> None:
        """Fail this server's unfinished responses, and close the database for good."""
        if store is not None:
            with contextlib.suppress(sqlite3.Error):
                store.wait_for_others(BUSY_TIMEOUT)
                store.tables.responses.fail_unfinished(own=True)
            with contextlib.suppress(sqlite3.Error):
                store.close()
        self.release()

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _owns(self, path: Path) -> bool:
        """Return whether this server has the database, which it takes unless another one has it."""
        if self._is_taken or (self._lock is not None and self._lock.holds()):
            return not self._is_taken
        self.release()
        try:
            self._lock = ServerLock(path)
        except BlockingIOError:
            self._is_taken = True
            log.warning(
                "another server has the database",
                actor="store",
                path=str(path),
                effect="all but the keys is kept in memory until this server ends",
                instead="--db with a file of its own",
            )
        return not self._is_taken
