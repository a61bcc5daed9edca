"""Worker threads, which the system owns and lends to one model after another.

A new thread per load would leak, since MLX keeps a native thread for every thread that used it; and a process
aborts if it ends before such a thread has cleared its streams. So threads are reused and clear their streams
when the system closes. A thread whose job has crashed ends sooner, since the device may refuse all later work
on its queue.
"""

from __future__ import annotations

import gc
import math
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs
import trio

from greenroom.actors.core.ref import Control
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker_thread import (
    SILENT_TICKS,
    Activity,
    DeviceReport,
    Heartbeat,
    Purpose,
    Replacements,
    Verdict,
    Worker,
)
from greenroom.engine.loading.devices import computes_on_cpu
from greenroom.engine.resources.device_errors import Crash, crash_of, find_late_crash
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem

log = get_logger()

T = TypeVar("T")

HANG_TIMEOUT = 120.0  # Time in seconds without a heartbeat after which an active thread counts as hung
CPU_PATIENCE = 5  # Multiple of it for computation on a CPU, where one sentence of speech has taken 310 s


@attrs.frozen
class WorkersStatistics:
    """The numbers of threads by state. `working`: number of lent threads whose jobs have not paused."""

    lent: int
    idle: int
    quarantined: int
    replaced: int = 0
    working: int = 0


@attrs.frozen
class JobEnd:
    """The end of a job that computes on the device."""

    device: DeviceReport = attrs.field(factory=DeviceReport, kw_only=True)


@attrs.frozen
class JobCrashed(JobEnd):
    """The end of a job by an unexpected exception."""

    reason: str


@attrs.frozen
class WorkerSilent:
    """The notice that a hung thread is quarantined: neither awaited nor lent again."""

    seconds: float


@attrs.frozen(eq=False)
class _Loan:
    owner: str
    heartbeat: Heartbeat
    report: Callable[[WorkerSilent], None]


_CLOSE_SECONDS: dict[Purpose, float] = {"gpu": math.inf, "tokenizer": 2.0, "store": 2.0}
"""Maximum seconds to wait for a job at close. Work on the GPU ends with its step. A tokenizer thread that
takes longer is downloading or importing, and cannot be stopped. The store's thread has had its time before
(`Store.stop`)."""


def release_memory() -> Crash | None:
    """Release a dropped model's memory on its own thread; imports nothing of MLX.

    Returns:
        Worst crash found late among the thread's last computations; None if there was none.
    """
    late = find_late_crash()
    gc.collect()
    if "mlx.core" in sys.modules:
        sys.modules["mlx.core"].clear_cache()
    return late


class Workers:
    """The system's threads: lent, free and quarantined ones.

    Args:
        hang_timeout: Time in seconds without a heartbeat after which a thread counts as hung; None for
            `HANG_TIMEOUT`, and `CPU_PATIENCE` times that where a model computes on a CPU.

    Attributes:
        device_lost: Event, set when new threads would not help; `loss` then gives the reason.
    """

    def __init__(self, hang_timeout: float | None = None, activity: Activity | None = None) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._hang_timeout = HANG_TIMEOUT if hang_timeout is None else hang_timeout
        self._follows_device = hang_timeout is None
        self._activity = activity or Activity()
        self.device_lost = trio.Event()
        self._replacements = Replacements()
        self._count = 0
        self._lent: dict[Worker, _Loan] = {}
        self._free: list[Worker] = []
        self._quarantined: dict[Worker, _Loan] = {}
        self._leaving: list[Worker] = []

    def lend(
        self,
        purpose: Purpose,
        job: Callable[[Heartbeat], T],
        report: Callable[[T | JobCrashed | WorkerSilent], None],
        owner: str = "",
    ) -> Worker:
        """Run `job` on its own thread, however long it takes, and watch it.

        Args:
            job: Function that sends heartbeats; everything for a model's whole life is one job.
            report: Callback on the Trio thread with the job's result, or JobCrashed, at its end; called
                before that, once, with WorkerSilent if its thread is quarantined.
            owner: Name of the model that needs the thread, for `hung` and the logs.
        """
        worker = next((free for free in reversed(self._free) if free.purpose == purpose), None)
        if worker is None:
            self._count += 1
            worker = Worker(purpose, self._count, self._token)
        else:
            self._free.remove(worker)
        heartbeat = Heartbeat(partial(self._activity.set_busy, worker, owner))
        loan = self._lent[worker] = _Loan(owner, heartbeat, report)
        self._activity.set_busy(worker, owner, True)
        worker.put(self._returning(worker, partial(job, loan.heartbeat), report))
        return worker

    async def watch(self) -> None:
        """Quarantine threads without heartbeats, until cancelled."""
        while True:
            await trio.sleep(self._hang_timeout / SILENT_TICKS)
            for worker, loan in [*self._lent.items()]:
                slow = self._follows_device and worker.purpose == "gpu" and computes_on_cpu()
                patience = CPU_PATIENCE if slow else 1
                if loan.heartbeat.check(patience):
                    seconds = self._hang_timeout * patience
                    fields = {"model": loan.owner, "silent_seconds": seconds}
                    log.error("worker hangs", actor="system", worker=worker.name, **fields)
                    self.quarantine(worker)
                    loan.report(WorkerSilent(seconds))

    def quarantine(self, worker: Worker) -> None:
        """Stop awaiting and reusing a hung thread; it ends with its job, if the job ever ends."""
        if worker in self._lent:
            self._quarantined[worker] = self._lent.pop(worker)
            worker.stop()

    def hung(self, purpose: Purpose | None = None) -> Counter[str]:
        """Return the numbers of quarantined threads by owner, of one purpose or of all."""
        quarantined = self._quarantined.items()
        return Counter(loan.owner for worker, loan in quarantined if purpose in (None, worker.purpose))

    def statistics(self) -> WorkersStatistics:
        replaced = self._replacements.replaced
        working = sum(not loan.heartbeat.paused for loan in self._lent.values())
        return WorkersStatistics(len(self._lent), len(self._free), len(self._quarantined), replaced, working)

    @property
    def loss(self) -> str:
        """Reason why the device is lost; empty if it is not."""
        return self._replacements.loss or ""

    async def close(self, seconds: float) -> bool:
        """End every thread that is able to end.

        Args:
            seconds: Time in seconds for running jobs that have been told to end.

        Returns:
            Whether all threads have ended; if not, the process must end with `os._exit`.
        """
        ending = [*self._free, *self._lent, *self._leaving]
        for worker in ending:
            worker.stop()
        for purpose, most in _CLOSE_SECONDS.items():
            with trio.move_on_after(min(seconds, most), shield=True):
                for worker in ending:
                    if worker.purpose == purpose:
                        await worker.ended.wait()
        hung = [worker for worker in ending if not worker.ended.is_set() or not worker.join(1.0)]
        hung += [worker for worker in self._quarantined if not worker.ended.is_set()]
        for worker in hung:
            log.error("worker hangs", actor="system", worker=worker.name)
        return not hung

    def _returning(
        self, worker: Worker, job: Callable[[], T], report: Callable[[T | JobCrashed], None]
    ) -> Callable[[], Callable[[], None]]:
        def run() -> Callable[[], None]:
            result: T | JobCrashed
            try:
                result = job()
            except BaseException as error:  # includes Rust panics and exit() in a model's code
                log.exception("job crashed", actor="system", worker=worker.name)
                result = JobCrashed(f"{type(error).__name__}: {error}", device=DeviceReport(crash_of(error)))
            if isinstance(result, JobCrashed) and worker.purpose == "gpu":
                result = attrs.evolve(result, device=result.device.with_crash(release_memory()))
            return lambda: self._returned(worker, result, lambda: report(result))

        return run

    def _returned(self, worker: Worker, result: object, report: Callable[[], None]) -> None:
        loan = self._lent.pop(worker, None)
        quarantined = self._quarantined.pop(worker, None)
        if (ended := loan or quarantined) is not None:
            self._activity.set_busy(worker, ended.owner, False)
        if self._may_lend_again(worker, result, (loan or quarantined)) and loan is not None:
            self._free.append(worker)
        elif loan is not None or quarantined is not None:
            worker.stop()
            self._leaving = [*(other for other in self._leaving if not other.ended.is_set()), worker]
        report()

    def _may_lend_again(self, worker: Worker, result: object, loan: _Loan | None) -> bool:
        """Return whether a thread can run another job; log a replaced thread and a lost device."""
        if not isinstance(result, JobEnd):
            return True
        device, fresh = result.device, worker.fresh
        if worker.purpose != "gpu":  # ending it leaks no MLX thread
            return device.crash is None
        worker.fresh = fresh and not device.computed
        verdict = self._replacements.judge(device, fresh=fresh)
        if verdict is Verdict.LEND_AGAIN:
            return True
        owner = loan.owner if loan is not None else ""
        fields = {"worker": worker.name, "model": owner, "replaced": self._replacements.replaced}
        log.warning("worker replaced", actor="system", **fields)
        if verdict is Verdict.LOST and not self.device_lost.is_set():
            log.error("device lost", actor="system", reason=self.loss)
            self.device_lost.set()
        return False


MAX_HUNG = 3  # Maximum number of hung threads per owner before no more are started; each may keep a core busy


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
