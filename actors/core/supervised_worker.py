"""A worker thread that does an actor's queued work, and its replacement when it crashes or hangs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs

from greenroom.actors.core.heartbeat import Heartbeat
from greenroom.actors.core.ref import Control
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.core.worker_thread import Purpose
from greenroom.schemas.problems import Problem

MAX_HUNG = 3
"""Maximum number of hung threads per owner before no more are started; each may keep a core busy."""


class Work(Protocol):
    """A unit of work that is answered or failed through its reply."""

    @property
    def reply(self) -> Reply:
        """Reply that carries the result to the client."""


WorkT = TypeVar("WorkT", bound=Work)


class WorkLoop(Protocol[WorkT]):
    """A job that does queued work until told to end; all methods may be called on any thread.

    Attributes:
        in_hand: Work in progress; None if there is none.
    """

    in_hand: WorkT | None

    def put(self, work: WorkT, /) -> None:
        """Queue work."""

    def end(self) -> None:
        """End the job after the queued work."""

    def abandon(self) -> list[WorkT]:
        """Remove and return the queued work, and end; a late result of the work in hand is discarded."""

    def run(self, heartbeat: Heartbeat) -> object:
        """Run the job while sending heartbeats; return its outcome."""


LoopT = TypeVar("LoopT", bound=WorkLoop[Any])


@attrs.frozen(eq=False)
class WorkerOutcome:
    """The outcome of a borrowed thread, for `SupervisedWorker.record` in the actor's own task."""

    loop: Any
    outcome: object


class SupervisedWorker(Generic[LoopT, WorkT]):
    """An actor's worker thread, at most one at a time.

    If a thread is lost, its work in hand fails, and the next thread does the queued work.

    Args:
        control: Control channel that receives the reports of threads, and their `WorkerOutcome`.
        owner: Name of the model that needs the threads; empty for none.
    """

    purpose: ClassVar[Purpose]

    def __init__(self, workers: Workers, control: Control[Any], owner: str = "") -> None:
        self._workers = workers
        self._control = control
        self._owner = owner
        self._loop: LoopT | None = None

    @property
    def hung(self) -> int:
        """Number of hung threads that have not ended."""
        return self._workers.hung(self.purpose)[self._owner]

    @property
    def active(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        """Borrow a thread, unless `MAX_HUNG` threads hang."""
        if self.hung >= MAX_HUNG:
            self._on_given_up(self.hung)
            return
        loop = self._loop = self._open_loop()

        def report(outcome: object) -> None:
            self._control.send(WorkerOutcome(loop, outcome))

        self._workers.lend(self.purpose, loop.run, report, self._owner)

    def put(self, work: WorkT) -> bool:
        """Queue work, for a new thread if there is none; return whether a thread will do it."""
        if self._loop is None:
            self.start()
        if self._loop is not None:
            self._loop.put(work)
        return self.active

    def end(self) -> None:
        """End the thread after the queued work."""
        if self._loop is not None:
            self._loop.end()

    def record(self, ended: WorkerOutcome) -> None:
        """Record a thread's outcome, and replace a lost thread."""
        loop = self._loop
        if loop is None:
            self._on_returned()
        if loop is None or ended.loop is not loop:
            return
        self._loop = None
        match ended.outcome:
            case JobCrashed(reason=reason):
                self._replace(loop, self._crash_problem(reason))
            case WorkerSilent(seconds):
                self._on_silent(loop, seconds)
            case end:
                self._on_ended(end)

    @abstractmethod
    def _open_loop(self) -> LoopT:
        """Return a new job for a borrowed thread."""

    @abstractmethod
    def _crash_problem(self, reason: str) -> Problem:
        """Return the problem of work whose thread has crashed, from the exception in one line."""

    @abstractmethod
    def _on_silent(self, loop: LoopT, seconds: float) -> None:
        """Replace a thread that has sent no heartbeat for `seconds`."""

    def _on_given_up(self, hung: int) -> None:
        """Report that no thread is started because so many hang."""

    def _on_returned(self) -> None:
        """Continue after a hung thread has ended and no other is borrowed."""

    def _on_ended(self, end: Any) -> None:
        """Record the end of a thread's job."""

    def _replace(self, lost: LoopT, problem: Problem) -> None:
        """Fail the work in hand of a lost thread, and have the next thread do the rest."""
        waiting = lost.abandon()
        if lost.in_hand is not None:
            lost.in_hand.reply.fail(problem)
        self._restart(waiting)

    def _restart(self, waiting: list[WorkT]) -> None:
        for work in waiting:
            self.put(work)
