"""A worker thread with a stack for recursion in native code, its heartbeat, and its replacements."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue
from typing import Literal

import attrs
import trio

from greenroom.engine.resources.device_errors import Crash
from greenroom.schemas.logs import get_logger

log = get_logger()

Purpose = Literal["gpu", "tokenizer", "store"]
"""The purpose of a thread. Reuse keeps it, so that no tokenizer thread comes to hold MLX streams."""

STACK_BYTES = 32 << 20
"""Stack size of a worker in bytes. llguidance recurses natively for nested grammars, and macOS gives threads
512 kB by default. Only the pages that are touched take memory."""

_stack_size_lock = threading.Lock()  # Lock around `threading.stack_size`, which applies to the whole process


class Worker:
    """An OS thread that runs queued jobs one at a time and keeps no references to finished ones.

    Attributes:
        fresh: True if nothing has been computed on it yet; for the Trio thread only.
        ended: Event, set when the thread runs nothing any more.
    """

    def __init__(self, purpose: Purpose, number: int, token: trio.lowlevel.TrioToken) -> None:
        self.purpose = purpose
        self.name = f"greenroom-{purpose}-{number}"
        self.fresh = True
        self.ended = trio.Event()
        self._token = token
        self._jobs: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        _start_with_large_stack(self._thread)

    def put(self, job: Callable[[], Callable[[], None]]) -> None:
        """Run `job` on the thread, then its result on the Trio thread."""
        self._jobs.put(job)

    def stop(self) -> None:
        self._jobs.put(None)

    def join(self, seconds: float) -> bool:
        """Wait until the operating system has ended a thread that has `ended`, and return whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            while (job := self._jobs.get()) is not None:
                report = job()
                del job
                self._token.run_sync_soon(report)
                del report
        try:
            # Otherwise the process aborts at its end. Afterwards this thread can never use MLX again.
            if "mlx.core" in sys.modules:
                sys.modules["mlx.core"].clear_streams()
        except Exception:  # raised if the device has failed
            log.exception("streams not cleared", actor="system", worker=self.name)
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.ended.set)


def _start_with_large_stack(thread: threading.Thread) -> None:
    with _stack_size_lock:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)


SILENT_TICKS = 8
"""Consecutive checks without a heartbeat after which a job counts as hung. The checks are counted, not the
time: after a process was stopped or its machine slept, a single check is late."""


class Heartbeat:
    """The heartbeats of a job; a job that has sent none yet counts as active.

    One thread writes it and another reads it, one attribute at a time.

    Args:
        on_active: Callback of the job's thread: with True before it works again, with False once it pauses.
    """

    def __init__(self, on_active: Callable[[bool], None] | None = None) -> None:
        self._on_active = on_active
        self._beats = 0
        self._paused = False
        self._seen = -1
        self._silent = 0

    def beat(self) -> None:
        """Report that the job is active and has made progress."""
        if self._paused:
            self._set_paused(False)
        self._beats += 1

    def pause(self) -> None:
        """Report that the job waits for something external, for an unlimited time."""
        if not self._paused:
            self._set_paused(True)

    @property
    def paused(self) -> bool:
        """True while the job waits for something external."""
        return self._paused

    def check(self, patience: int = 1) -> bool:
        """Count a check, and return whether the job counts as hung. For the Trio thread only. `patience`:
        multiple of `SILENT_TICKS` after which it does.
        """
        beats = self._beats
        silent = not self._paused and beats == self._seen
        self._seen, self._silent = beats, self._silent + 1 if silent else 0
        return self._silent >= SILENT_TICKS * patience

    def _set_paused(self, paused: bool) -> None:
        self._paused = paused
        if self._on_active is not None:
            self._on_active(not paused)


class Activity:
    """The models that load or compute now, and whether a library is imported.

    All methods may be called on any thread.

    Args:
        on_change: Callback after each change, on the thread that caused it and before the work begins; must
            not block.
    """

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._busy: dict[object, str] = {}
        self._imports = 0
        self._lock = threading.Lock()

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that load or compute, each once."""
        with self._lock:
            return tuple(dict.fromkeys(self._busy.values()))

    @property
    def importing(self) -> bool:
        """True while a library is imported, which may hold the interpreter's lock for long."""
        return self._imports > 0

    def set_busy(self, thread: object, model: str, busy: bool) -> None:
        """Record that a thread begins or ends work for a model; a thread of no model is not recorded."""
        with self._lock:
            changed = (self._busy.get(thread) is not None) != busy
            if busy and model:
                self._busy[thread] = model
            else:
                self._busy.pop(thread, None)
        if changed and model:
            self._tell()

    def set_importing(self, importing: bool) -> None:
        with self._lock:
            self._imports += 1 if importing else -1
        self._tell()

    def _tell(self) -> None:
        if self._on_change is not None:
            self._on_change()


MAX_REPLACED = 16  # Maximum number of replaced threads per process; MLX leaks a native thread for each

MAX_REPLACED_FOR_CODE = 8
"""Maximum number of replacements for crashes in code, so that some are left for device crashes."""

FRESH_DEATHS = 2  # Consecutive fresh threads that crash on the device before it counts as lost


@attrs.frozen
class DeviceReport:
    """A job's findings about the device. `crash`: worst crash of the job, including one found later; None if
    there was none; `computed`: True if a result computed by the device was read.
    """

    crash: Crash | None = None
    computed: bool = False

    def with_crash(self, crash: Crash | None) -> DeviceReport:
        return attrs.evolve(self, crash=max(filter(None, (self.crash, crash)), default=None))


class Verdict(Enum):
    """The decision about a thread whose job has ended."""

    LEND_AGAIN = "lend again"
    REPLACE = "replace"
    LOST = "lost"
    """New threads would not help: the process has to end."""


class Replacements:
    """Counter of replaced threads, which decides about crashed ones.

    Attributes:
        replaced: Number of replaced threads.
        loss: Reason why the device is lost; None while it is not.
    """

    def __init__(self) -> None:
        self.replaced = 0
        self.loss: str | None = None
        self._for_code = 0
        self._fresh_deaths = 0

    def judge(self, report: DeviceReport, *, fresh: bool) -> Verdict:
        """Decide whether to lend a thread again after its job, to replace it, or to give up the device.
        `fresh`: True if no earlier job computed anything on the thread.
        """
        if report.computed:
            self._fresh_deaths = 0
        match report.crash:
            case None:
                return Verdict.LEND_AGAIN
            case Crash.CODE:
                return self._judge_code()
            case Crash.REFUSED:
                return self._lose("the system ignores what this process submits to the GPU")
            case Crash.DEVICE if fresh and not report.computed:
                self._fresh_deaths += 1
        if self._fresh_deaths >= FRESH_DEATHS:
            return self._lose(f"{FRESH_DEATHS} fresh threads in a row died of its errors")
        if self.replaced >= MAX_REPLACED:
            return self._lose(
                f"{MAX_REPLACED} threads were replaced already, and another one died of its errors"
            )
        self.replaced += 1
        return Verdict.REPLACE

    def _judge_code(self) -> Verdict:
        if self._for_code >= MAX_REPLACED_FOR_CODE or self.replaced >= MAX_REPLACED:
            return Verdict.LEND_AGAIN
        self._for_code += 1
        self.replaced += 1
        return Verdict.REPLACE

    def _lose(self, why: str) -> Verdict:
        self.loss = self.loss or why
        return Verdict.LOST
