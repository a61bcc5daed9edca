"""The store actor: stores data that outlives its request in SQLite, on its own worker."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import MAX_HUNG, SupervisedWorker, WorkerOutcome, Workers
from greenroom.actors.store.connection import BUSY_TIMEOUT
from greenroom.actors.store.database_file import MEMORY
from greenroom.actors.store.problems import store_given_up, store_hung, store_overloaded
from greenroom.actors.store.store_loop import Answered, DatabaseChanged, DatabaseOpener, Job, StoreLoop
from greenroom.actors.store.tables import Result, Run, StoreMessage, Tables, name_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, draining, internal_error
from greenroom.schemas.protocols.store_protocol import (
    CheckStoring,
    Committed,
    DescribeStore,
    Prune,
    StoreStatus,
)
from greenroom.schemas.settings.settings import Settings

if TYPE_CHECKING:
    from sqlite_utils import Database


FIRST_PRUNE = 5.0  # Seconds after the start at which a database in a file is opened, if not used before
PRUNE_INTERVAL = 3600.0  # Interval in seconds between checks for expired data
LOCKED_SECONDS = 0.5
"""Seconds in which a system that closes waits for a process that has held the database for long already."""

_REFUSALS = ("store_busy", "storage_full")
"""The codes of problems that are likely to affect the next write too."""


@attrs.frozen
class _Stop:
    """The command to end after the queued messages."""


class Store:
    """The actor that answers `StoreMessage`s in order; it opens the database with the first one. `database`:
    open database to use instead of the settings' file; it stays open.
    """

    def __init__(
        self, settings: Settings, workers: Workers, database: Database | sqlite3.Connection | None = None
    ) -> None:
        self._inbox: Inbox[StoreMessage] = Inbox()
        self.ref: Ref[StoreMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._log = get_logger().bind(actor="store")
        self._problem: Problem | None = None
        self._refuses = False
        self._ended = trio.Event()
        self._stopping = False
        self._scope = trio.CancelScope(shield=True)
        kept = settings.db
        path = MEMORY if kept is None or kept == MEMORY else str(Path(kept).expanduser())
        self._outlives = database is not None or path != MEMORY
        self._opener = DatabaseOpener(path if database is None else database, settings)
        self._worker = StoreWorker(self._opener, workers, self._control)

    def keep(self, function: Callable[[Tables], object]) -> None:
        """Queue a function that writes, and whose result nobody waits for; on any thread."""
        self._control.send_from_thread(Envelope(Run(function, writes=True)))

    async def run(self) -> None:
        """Receive messages until stopped, not only cancelled: other actors may still store something."""
        self._log.debug("started")
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._inbox.forward, self._control)
                    nursery.start_soon(self._prune_now_and_then)
                    while not (self._stopping and not self._worker.active):
                        self._receive(await self._control.receive())
                    nursery.cancel_scope.cancel("the store stops")
        finally:
            self._worker.end()
            self._opener.release()
            self._control.close(draining())
            self._inbox.fail_unanswered(draining())
            self._ended.set()
            self._log.debug("stopped")

    def hurry(self, seconds: float) -> None:
        """Wait at most `seconds` more, in all, for other processes that write; less if one does not end."""
        most = LOCKED_SECONDS if self._refuses else BUSY_TIMEOUT
        self._opener.deadline = time.monotonic() + min(seconds, most)

    async def stop(self, seconds: float) -> None:
        """Stop the store after it has answered the queued messages. `seconds`: time limit in seconds; after
        it, the messages that are left stay unanswered.
        """
        self._control.send(_Stop())
        with trio.move_on_after(seconds, shield=True):
            await self._ended.wait()
        self._scope.cancel("the store takes too long to stop")

    def _receive(self, received: Any) -> None:
        match received:
            case Envelope(message, reply):
                self._receive_message(message, reply or Reply())
            case Answered(job, answer):
                self._worker.record_answered(job)
                if job.writes:
                    self._refuses = isinstance(answer, Problem) and answer.code in _REFUSALS
                _send(job.reply, answer)
            case DatabaseChanged(problem):
                self._problem = problem
            case WorkerOutcome() as outcome:
                self._worker.record(outcome)
                if self._stopping:
                    self._worker.end()  # ends a replacement thread
            case _Stop():
                self._stopping = True
                self._worker.end()

    def _receive_message(self, message: StoreMessage, reply: Reply) -> None:
        self._log.debug("received", message=name_of(message))
        if isinstance(message, DescribeStore):
            problem = self._worker.problem or self._problem
            _send(reply, StoreStatus(problem.detail if problem else None, self._worker.hung))
        elif self._stopping:
            reply.fail(draining())
        elif (
            isinstance(message, Run)
            and message.unused is not None
            and not (self._outlives or self._worker.active)
        ):
            _send(reply, Result(message.unused))  # a database in memory that nothing has opened yet
        elif isinstance(message, CheckStoring) and not self._refuses:
            # The database must be asked only if it rejected the last write.
            _send(reply, Committed())
        else:
            self._worker.put(Job(message, reply))

    async def _prune_now_and_then(self) -> None:
        await trio.sleep(FIRST_PRUNE)
        last: Reply | None = None
        while True:
            if (self._outlives or self._worker.active) and (last is None or last.ended):
                last = Reply()
                self._control.send(Envelope(Prune(), last))
            await trio.sleep(PRUNE_INTERVAL)


def _send(reply: Reply, answer: object) -> None:
    if isinstance(answer, Problem):
        reply.fail(answer)
    else:
        if answer is not None:
            reply.send(answer)
        reply.end()


MAX_WAITING = 1024  # Maximum number of waiting messages, whose contents stay in memory


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
