"""The job of a model's GPU worker from load to unload, confined to one thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

import attrs
import structlog

from greenroom.actors.core.heartbeat import Heartbeat
from greenroom.actors.core.replacements import DeviceReport
from greenroom.actors.core.worker import JobEnd, release_memory
from greenroom.actors.engines.engine_protocol import Engine, SuspendableEngine, SuspendedRequest
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.model.event_coalescer import EventCoalescer
from greenroom.actors.model.loop_commands import (
    Cancel,
    Close,
    Command,
    ReleaseCaches,
    ReleaseMemory,
    Resume,
    Submit,
    Suspend,
)
from greenroom.actors.model.snapshot_publisher import SnapshotPublisher
from greenroom.engine.device.device_crashes import Crash, crash_of
from greenroom.schemas.events.events import Failed, InferenceEvent, ReasoningDelta, TextDelta, ToolCallDelta
from greenroom.schemas.events.result_events import AudioChunk, Score, Segment, Vector
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import NoRoomError, Problem, ProblemError, load_crashed, model_crashed
from greenroom.schemas.protocols.model_protocol import LoadProgress, Trimmed

log = get_logger()

_RESULTS = (TextDelta, ReasoningDelta, ToolCallDelta, Vector, Score, AudioChunk, Segment)
"""The events with results that the device has computed; others only tell of launched work."""


@attrs.frozen
class Loaded:
    """The report that the model can generate.

    Args:
        admits_all: True if no request needs to wait for a slot (`SuspendableEngine`).
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
        """Queue a command for execution before the next step."""
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
            return LoopEnded(model_crashed(self._key.model), suspended=self._unbegun(engine))
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
            if self._leaving and self._suspend(engine, idle):
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
