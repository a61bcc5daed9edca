"""The job of a model's GPU worker from load to unload, confined to one thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import attrs
import structlog

from greenroom.actors.core.worker import JobEnd, release_memory
from greenroom.actors.core.worker_thread import DeviceReport, Heartbeat
from greenroom.actors.engines.engine_protocol import (
    AdaptingEngine,
    Engine,
    SuspendableEngine,
    SuspendedRequest,
)
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.engine.resources.device_errors import Crash, crash_of
from greenroom.schemas.events.events import (
    Failed,
    Finished,
    InferenceEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from greenroom.schemas.events.result_events import AudioChunk, Score, Segment, Vector
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import PreparedInput
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import NoRoomError, Problem, ProblemError, load_crashed, model_crashed
from greenroom.schemas.protocols.model_protocol import DropAdapter, LoadProgress, Trimmed

log = get_logger()

_RESULTS = (TextDelta, ReasoningDelta, ToolCallDelta, Vector, Score, AudioChunk, Segment)
"""The events with results that the device has computed; others only tell of launched work."""


@attrs.frozen
class Loaded:
    """The report that the model can generate. `admits_all`: True if no request needs to wait for a slot
    (`SuspendableEngine`).
    """

    admits_all: bool = False


@attrs.frozen
class Stepped:
    """The events of one step, or of several fast ones, for all requests."""

    events: list[tuple[str, InferenceEvent]]


LoopReport = LoadProgress | Loaded | Stepped | Trimmed | EngineSnapshot


@attrs.frozen
class LoopEnded(JobEnd):
    """The end of the loop, with its memory released.

    Args:
        problem: Problem that ended the loop; None if it was told to end.
        loaded: True if the weights had been loaded.
        refused: Bytes required and available, if the memory account had no room for the weights.
        suspended: Requests to resume in the next engine, by id; None if the engine cannot suspend any.
        freed: Bytes that the unload has freed; None if nothing was loaded.
    """

    problem: Problem | None = None
    loaded: bool = True
    refused: tuple[int, int] | None = None
    suspended: Mapping[str, SuspendedRequest] | None = None
    freed: int | None = None


class ModelLoop:
    """A job that loads a model, steps it while there is work, and unloads it.

    All public methods may be called on any thread.

    Args:
        report: Callback for reports, on this thread; must not block.
    """

    def __init__(
        self, key: ModelKey, engines: Engines, opened: OpenedModel, report: Callable[[LoopReport], None]
    ) -> None:
        self._key = key
        self._engines = engines
        self._opened = opened
        self._report = report
        self._coalescer = EventCoalescer(lambda events: report(Stepped(events)))
        self._publisher = SnapshotPublisher(report)
        self._commands: SimpleQueue[Command] = SimpleQueue()
        self._abandoned = False
        self._leaving = False
        self._has_answered = False
        self._suspended: Mapping[str, SuspendedRequest] | None = None
        self._device = DeviceReport()
        self._heartbeat = Heartbeat()

    def put(self, command: Command) -> None:
        self._commands.put(command)

    def pop_commands(self) -> list[Command]:
        """Remove and return the commands that came too late; call it after the job has ended."""
        late: list[Command] = []
        while not self._commands.empty():
            late.append(self._commands.get())
        return late

    def abandon(self) -> None:
        """Unload at the next opportunity, even in the middle of a load."""
        self._abandoned = True
        self._commands.put(Close())

    def run(self, heartbeat: Heartbeat) -> LoopEnded:
        """Run the job, sending heartbeats; the result holds any problem."""
        self._heartbeat = heartbeat
        # The engine's log lines carry the model's public name.
        with structlog.contextvars.bound_contextvars(actor="model", model=str(self._key)):
            end = self._load_and_step()
            late = release_memory()
            freed = self._engines.residences.end(self._opened.id) if end.loaded else None
        return attrs.evolve(end, device=self._device.with_crash(late), freed=freed)

    def _load_and_step(self) -> LoopEnded:
        try:
            engine = self._engines.load_engine(self._opened, self._progress, lambda: self._abandoned)
        except BaseException as error:  # includes Rust panics and exit() in a model's code
            return self._load_failed(error)
        try:
            engine.on_memory_wanted(lambda: self.put(ReleaseMemory()))
            self._report(Loaded(isinstance(engine, SuspendableEngine)))
            self._step_until_closed(engine)
            return LoopEnded(suspended=self._suspended)
        except BaseException as error:
            log.exception("crashed", actor="model", model=str(self._key))
            self._device = self._device.with_crash(crash_of(error))
            problem = error.problem if isinstance(error, ProblemError) else model_crashed(self._key.model)
            return LoopEnded(problem, suspended=self._unbegun(engine))
        finally:
            self._close(engine)

    def _load_failed(self, error: BaseException) -> LoopEnded:
        crash = crash_of(error)
        if crash is not Crash.CODE:  # the model's files or code are to blame, not the device
            self._device = self._device.with_crash(crash)
        if self._abandoned:
            return LoopEnded(loaded=False)
        if isinstance(error, NoRoomError):
            return LoopEnded(error.problem, loaded=False, refused=(error.required, error.available))
        if isinstance(error, ProblemError):
            return LoopEnded(error.problem, loaded=False)
        log.exception("load failed", actor="model", model=str(self._key), exc_info=error)
        return LoopEnded(load_crashed(self._key.model, error), loaded=False)

    def _step_until_closed(self, engine: Engine[Any]) -> None:
        residence = self._engines.residences.of(self._opened.id)
        try:
            while self._carry_out_commands(engine):
                events = engine.step()
                self._heartbeat.beat()
                if residence is not None:
                    residence.observe_step()
                self._has_answered = self._has_answered or bool(events)
                self._record_results(events)
                self._add(events)
                self._publisher.publish(engine.snapshot, idle=False)
        finally:
            self._coalescer.flush()
        self._publisher.publish(engine.snapshot, idle=True)  # the figures of this load outlive it

    def _add(self, events: list[tuple[str, InferenceEvent]]) -> None:
        self._coalescer.add(events)
        self._publisher.record(events)

    def _record_results(self, events: list[tuple[str, InferenceEvent]]) -> None:
        if not self._device.computed and any(isinstance(event, _RESULTS) for _, event in events):
            self._device = attrs.evolve(self._device, computed=True)

    def _carry_out_commands(self, engine: Engine[Any]) -> bool:
        """Execute queued commands, waiting for more while there is no work; return whether to continue."""
        cancelled = False
        while True:
            idle = not engine.has_work
            if self._leaving and not self._abandoned and self._suspend(engine, idle):
                return False
            try:
                if idle and self._commands.empty():
                    self._coalescer.flush()
                    self._publisher.publish(engine.snapshot, idle=True)
                    self._engines.residences.note(self._opened.id)
                    self._heartbeat.pause()
                command = self._commands.get(block=idle, timeout=engine.idle_delay if idle else None)
            except Empty:
                if not idle:
                    return True
                self._heartbeat.beat()
                engine.work_idly()
                continue
            self._coalescer.flush()
            self._heartbeat.beat()
            match command:
                case Submit() | Resume():
                    self._submit(engine, command)
                case Cancel(request_id):
                    engine.cancel(request_id)
                    cancelled = True
                case ReleaseMemory():
                    engine.release_memory()
                case ReleaseCaches():
                    self._report(Trimmed(self._engines.residences.release_caches(self._opened.id, engine)))
                case DropAdapter(folder):
                    if isinstance(engine, AdaptingEngine):
                        engine.drop_adapter(folder)
                case Suspend() if isinstance(engine, SuspendableEngine):
                    self._leaving = True
                case Suspend() | Close():
                    if cancelled:  # only a step reports the usage of those requests
                        self._add(engine.step())
                    return False

    def _submit(self, engine: Engine[Any], command: Submit | Resume) -> None:
        try:
            if isinstance(command, Submit):
                engine.submit(command.request, command.prepared)
            elif isinstance(engine, SuspendableEngine):
                engine.resume(command.suspended)
        except ProblemError as error:
            self._report(Stepped([(command.request_id, Failed(error.problem))]))

    def _suspend(self, engine: Engine[Any], idle: bool) -> bool:
        """Suspend all requests, but not before one has made progress.

        Otherwise models that take turns in the same memory would load forever and answer nothing.
        """
        if isinstance(engine, SuspendableEngine) and (idle or self._has_answered):
            self._suspended = engine.suspend()
        return self._suspended is not None

    def _unbegun(self, engine: Engine[Any]) -> Mapping[str, SuspendedRequest] | None:
        """Return the requests that had not started before a crash, which another engine can resume."""
        try:
            return engine.unbegun() if isinstance(engine, SuspendableEngine) else None
        except Exception:
            log.exception("requests lost", actor="model", model=str(self._key))
            return None

    def _progress(self, fraction: float) -> None:
        self._heartbeat.beat()
        self._report(LoadProgress(fraction))

    def _close(self, engine: Engine[Any]) -> None:
        residence = self._engines.residences.of(self._opened.id)
        try:
            if self._abandoned:  # as at a shutdown, which must not wait for copies that nobody will use
                self._engines.held.drop(self._opened.id)
            if residence is not None:
                residence.begin_unload()
            engine.close()
        except BaseException as error:
            log.exception("close failed", actor="model", model=str(self._key))
            self._device = self._device.with_crash(crash_of(error))


@attrs.frozen
class Submit:
    request: InferenceRequest
    prepared: PreparedInput

    @property
    def request_id(self) -> str:
        return self.request.id


@attrs.frozen
class Resume:
    """The command to resume a request that the model's previous engine has suspended."""

    request_id: str
    suspended: SuspendedRequest


@attrs.frozen
class Cancel:
    request_id: str


@attrs.frozen
class Suspend:
    """The command to unload once all requests can be suspended; at once if the engine cannot suspend any."""


@attrs.frozen
class Close:
    """The command to unload at once, dropping all requests."""


@attrs.frozen
class ReleaseMemory:
    """The command to release memory that another model has requested."""


@attrs.frozen
class ReleaseCaches:
    """The command to release all cached data, of this model and of MLX."""


Command = Submit | Resume | Cancel | ReleaseMemory | ReleaseCaches | DropAdapter | Suspend | Close


Events = list[tuple[str, InferenceEvent]]

MIN_INTERVAL = 0.005
"""Minimum seconds between two reports of text alone. Nobody reads faster, and each report wakes a thread that
takes the interpreter from the worker for up to a tenth of a 2 ms step."""

_TEXT = (TextDelta, ReasoningDelta)


class EventCoalescer:
    """Reporter of events in order; text deltas wait `MIN_INTERVAL` after the last report, others do not."""

    def __init__(self, report: Callable[[Events], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._pending: Events = []
        self._reported = -MIN_INTERVAL

    def add(self, events: Events) -> None:
        """Add the events of a step; if they are only text, another step or `flush` must follow."""
        self._pending = self._pending + events if self._pending else events
        if not self._pending:
            return
        due = self._clock() - self._reported >= MIN_INTERVAL
        if due or not all(isinstance(event, _TEXT) for _, event in events):
            self.flush()

    def flush(self) -> None:
        """Report pending events; call it before anything that takes longer than a step."""
        if self._pending:
            events, self._pending = self._pending, []
            self._report(events)
            if isinstance(events[-1][1], _TEXT):
                self._reported = self._clock()


INTERVAL = 1.0  # Minimum seconds between two snapshots of a working engine


class SnapshotPublisher:
    """Publisher of an engine's snapshots, which adds the usage of the requests that have ended."""

    def __init__(
        self, report: Callable[[EngineSnapshot], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._ended = Usage()
        self._published = -math.inf
        self._changed = True

    def record(self, events: Iterable[tuple[str, InferenceEvent]]) -> None:
        self._changed = True
        for _, event in events:
            if isinstance(event, Finished) and event.index:
                self._ended = self._ended.plus(event.usage)  # the prompt is counted with the first choice
            elif isinstance(event, Finished | Failed) and event.usage is not None:
                self._ended = self._ended.with_request(event.usage)

    def publish(self, read: Callable[[], EngineSnapshot], *, idle: bool) -> None:
        """Publish a snapshot if the engine has become idle, or else if the interval has passed."""
        now = self._clock()
        if not (self._changed if idle else now - self._published >= INTERVAL):
            return
        snapshot = read()
        usage = self._ended.with_request(snapshot.usage)
        self._published, self._changed = now, False
        self._report(attrs.evolve(snapshot, usage=usage))
