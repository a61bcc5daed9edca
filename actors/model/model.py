"""The model actor: a model, the adapter that prepares its prompts, and the two workers lent to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import JobCrashed, WorkerOutcome, Workers, WorkerSilent
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.model.model_loop import (
    Command,
    Loaded,
    LoopEnded,
    ModelLoop,
    ReleaseCaches,
    Stepped,
    Suspend,
)
from greenroom.actors.model.model_requests import ModelRequests, ReplyClosed
from greenroom.actors.model.preparer import Opened, PreparingFailed, PromptPrepared, TokenizerWorker
from greenroom.actors.model.running_requests import Preparation, records_of
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import TRANSITIONS, ModelState
from greenroom.schemas.problems import Problem, draining, internal_error, model_crashed, model_hung
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    DropAdapter,
    FailRequests,
    Generate,
    HungWorkerReturned,
    Load,
    LoadFailed,
    LoadProgress,
    LoadRefused,
    ModelCommand,
    ModelMessage,
    ModelReport,
    Open,
    Prepare,
    PreparingChanged,
    RenderPrompt,
    Reopen,
    StateChanged,
    Stop,
    Trim,
    Trimmed,
    Unload,
    Unloaded,
    WaitForMemory,
    WorkerHung,
)


class Model:
    """The actor of a model: prepares prompts in every state and generates while it is READY.

    The pool tells it when to load and unload. Only the model itself changes, logs and reports its state.

    Args:
        report: Callback for reports; must not block.
    """

    takes_room = True

    def __init__(
        self,
        key: ModelKey,
        engines: Engines,
        workers: Workers,
        report: Callable[[ModelReport], None],
        *,
        state: ModelState = ModelState.IDLE,
        slots: int,
    ) -> None:
        self.key, self.slots, self._inbox = key, slots, Inbox[ModelMessage]()
        self.ref: Ref[ModelMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._log = log = get_logger().bind(actor="model", model=str(key))
        self._report, self._lifecycle = report, Lifecycle(state)
        self._problem: Problem | None = None
        self._admitted = self._stopping = False
        self._tokenizer = TokenizerWorker(key, engines, workers, self._control)
        self._worker = EngineWorker(key, engines, workers, self._control)
        puts = self._tokenizer.put, self._worker.put, self._control.send
        self._requests = ModelRequests(*puts, report, log, records_of(engines))

    def send(self, command: ModelCommand) -> None:
        self._control.send(command)

    async def run(self) -> None:
        self._log.debug("started")
        problem = draining()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                self._tokenizer.start()
                while not self._stopping:
                    self._receive(await self._control.receive())
                nursery.cancel_scope.cancel("the model actor stops")
        except Exception:
            self._fail(problem := model_crashed(self.key.model))
            raise
        finally:
            self._end(problem)

    @property
    def released(self) -> bool:
        """True if no worker holds the model's memory."""
        return self._worker.released.is_set()

    async def wait_released(self) -> None:
        """Wait until a stopped actor's worker has released the memory, and report if the worker hangs."""
        await self._worker.wait_released(lambda: self._report(WorkerHung(model_hung(self.key.model))))

    def _receive(self, received: Any) -> None:
        match received:
            case Envelope(message, reply):
                self._receive_message(message, reply or Reply())
            case Stepped(events):
                self._requests.deliver(events)
            case ReplyClosed(request):
                self._requests.close(request)
            case PromptPrepared(preparation, result):
                self._requests.record_prepared(preparation, result)
            case Stop():
                self._stopping = True
            case command if isinstance(command, ModelCommand):
                self._carry_out(command)
            case report:
                self._record(report)

    def _receive_message(self, message: ModelMessage, reply: Reply) -> None:
        self._log.debug("received", message=type(message).__name__)
        try:
            self._answer(message, reply)
        except Exception:  # only this request fails; one message must not end the requests of others
            self._log.exception("message failed", message=type(message).__name__)
            reply.fail(internal_error())

    def _answer(self, message: ModelMessage, reply: Reply) -> None:
        match message:
            case Prepare() | RenderPrompt() if self._opening_failed is not None:
                reply.fail(self._opening_failed)
            case Prepare(request) | RenderPrompt(request):
                rendering = isinstance(message, RenderPrompt)
                self._requests.prepare(Preparation(request, reply, rendering=rendering))
            case Generate():
                self._requests.generate(message, reply, self._problem or model_crashed(self.key.model))

    @property
    def _opening_failed(self) -> Problem | None:
        """The problem that keeps this actor from ever preparing a prompt; None if there is none."""
        return None if self._tokenizer.opened is not None else self._problem

    def _carry_out(self, command: ModelCommand) -> None:
        state = self._lifecycle.state
        match command:
            case Open() | Load() | WaitForMemory() if self._opening_failed is not None:
                self._report(LoadFailed(self._opening_failed))
            case Open() | Load():
                self._problem, self._admitted = None, isinstance(command, Load)
                if state is not ModelState.LOADING:
                    self._change(ModelState.LOADING)
                self._proceed()
            case Reopen():
                self._proceed(reopens=True)
            case WaitForMemory() if state in (ModelState.IDLE, ModelState.LOADING, ModelState.ERROR):
                self._change(ModelState.WAITING)
            case Unload(reason, cause) if state in (ModelState.LOADING, ModelState.READY):
                why = {"reason": reason} if cause is None else {"reason": reason, "for": str(cause)}
                self._change(ModelState.UNLOADING, why=why)
                self._requests.suspend()
                if self._worker.active:
                    self._worker.unload(suspends=state is ModelState.READY)
                else:
                    self._lifecycle.move(ModelState.IDLE, self._log)
                    self._report(Unloaded())
            case Trim() if state is ModelState.READY:
                self._worker.put(ReleaseCaches())
            case DropAdapter() if state is ModelState.READY:
                self._worker.put(command)
            case FailRequests(problem):
                self._requests.fail_all(problem)

    def _proceed(self, *, reopens: bool = False) -> None:
        """Report the model's size once its files are open, and start the load if memory is granted."""
        if (opened := self._tokenizer.current(reopens=reopens, in_use=self._worker.active)) is not None:
            self._report(opened.sized)
            if self._lifecycle.state is ModelState.LOADING and self._admitted:
                self._worker.start(opened)

    def _record(self, report: Any) -> None:
        match report:
            case Opened(opened):
                self._tokenizer.opened = opened
                self._report(PreparingChanged(None))
                self._proceed()
            case EngineSnapshot() if self._worker.hung:
                pass  # its figures were counted when it hung
            case LoadProgress() | DownloadProgress() | Trimmed() | EngineSnapshot():
                self._report(report)
            case Loaded(admits_all) if self._lifecycle.state is ModelState.LOADING:
                self._change(ModelState.READY, admits_all)
                self._requests.start_engine()
            case LoopEnded():
                self._record_loop_end(report)
            case WorkerOutcome():
                self._tokenizer.record(report)
            case PreparingFailed(problem, final, given_up):
                if self._tokenizer.opened is None:
                    self._fail(problem)
                    self._report(LoadFailed(problem))
                    self._requests.fail_running(problem)  # an engine may have left some
                else:
                    self._report(PreparingChanged(None if final and not given_up else problem))
                if final:
                    self._requests.fail_unprepared(problem)
            case WorkerSilent(seconds):
                self._fail(problem := model_hung(self.key.model, seconds))
                self._report(WorkerHung(problem))
                self._requests.fail_running(problem)

    def _record_loop_end(self, end: LoopEnded) -> None:
        problem, late = end.problem, self._worker.pop_commands()
        suspended = end.suspended if end.refused is None else {}  # what an earlier engine has left waits on
        self._requests.end_engine(suspended, late, problem or model_crashed(self.key.model))
        if self._worker.record_end():
            # The model stays in ERROR until the next load, which is possible from now on.
            self._log.warning("hung worker returned")
            self._report(HungWorkerReturned())
        else:
            state, report = _outcome(end, self._lifecycle.state)
            if problem is None or state is not ModelState.ERROR:
                self._lifecycle.move(state, self._log)
            else:
                self._fail(problem)
            self._report(report)

    def _change(self, state: ModelState, admits_all: bool = False, why: dict[str, str] | None = None) -> None:
        """Enter a state that is not the outcome of a load, and report it."""
        self._lifecycle.move(state, self._log, **(why or {}))
        self._report(StateChanged(state, admits_all))

    def _fail(self, problem: Problem) -> None:
        self._problem = problem
        if self._lifecycle.state is not ModelState.ERROR:
            self._lifecycle.move(ModelState.ERROR, self._log, problem=problem.code, detail=problem.detail)

    def _end(self, problem: Problem) -> None:
        if self._lifecycle.state is ModelState.WAITING:
            self._lifecycle.move(ModelState.IDLE, self._log)
        self._requests.end(problem)
        self._tokenizer.end()
        self._worker.unload()
        self._control.close(problem)
        self._log.debug("stopped")


def _outcome(end: LoopEnded, state: ModelState) -> tuple[ModelState, ModelReport]:
    """Return the state after a worker's job, and the report of it."""
    problem = end.problem
    if problem is None or (end.refused is not None and state is ModelState.UNLOADING):
        return ModelState.IDLE, Unloaded(end.freed)
    if end.refused is not None:
        # The memory account refused the weights; the pool frees memory elsewhere or refuses the requests.
        return ModelState.WAITING, LoadRefused(problem, *end.refused)
    return ModelState.ERROR, Crashed(problem) if end.loaded else LoadFailed(problem)


class ImpossibleTransition(Exception):
    """An error for a transition that the lifecycle does not allow."""


class Lifecycle:
    """The state of a model."""

    def __init__(self, state: ModelState = ModelState.IDLE) -> None:
        self.state = state

    def to(self, state: ModelState) -> None:
        """Move to another state. Raises ImpossibleTransition: the table has no such transition."""
        if state not in TRANSITIONS[self.state]:
            raise ImpossibleTransition(f"{self.state} to {state}")
        self.state = state

    def move(self, state: ModelState, log: Any, **fields: str) -> None:
        """Move to another state, and log that.

        Raises:
            ImpossibleTransition: The table has no such transition.
        """
        before = self.state
        self.to(state)
        level = logging.ERROR if state is ModelState.ERROR else logging.INFO
        log.log(level, "state changed", before=str(before), state=str(state), **fields)
        if before is ModelState.ERROR and state is ModelState.LOADING:
            log.info("restarted")


class EngineWorker:
    """The model's GPU worker, at most one at a time; `control` receives its reports, its hang and its end.

    Attributes:
        hung: True if the worker is quarantined; it may still end.
        released: Event, set while no worker holds the model's memory.
    """

    def __init__(self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any]) -> None:
        self.hung = False
        self.released = trio.Event()
        self.released.set()
        self._silent = trio.Event()
        self._key = key
        self._engines = engines
        self._workers = workers
        self._control = control
        self._loop: ModelLoop | None = None

    @property
    def active(self) -> bool:
        """True if a worker is lent and its end has not been recorded."""
        return self._loop is not None

    def start(self, opened: OpenedModel) -> None:
        """Borrow a worker and load the model's weights on it, unless one is borrowed already."""
        if self._loop is None:
            self._loop = ModelLoop(self._key, self._engines, opened, self._control.send_from_thread)
            self.released, self._silent = trio.Event(), trio.Event()
            self._workers.lend("gpu", self._loop.run, self._report, str(self._key))

    def put(self, command: Command) -> None:
        if self._loop is not None:
            self._loop.put(command)

    def pop_commands(self) -> list[Command]:
        """Remove and return the commands that the worker did not execute before it ended."""
        return self._loop.pop_commands() if self._loop is not None else []

    def unload(self, *, suspends: bool = False) -> None:
        """Tell the worker to release the weights, even in the middle of a load. `suspends`: True to unload
        only once running requests can be suspended, to resume in another engine.
        """
        if suspends:
            self.put(Suspend())
        elif self._loop is not None:
            self._loop.abandon()

    def record_end(self) -> bool:
        """Forget the worker, which has ended, and return whether it was quarantined."""
        was_hung, self.hung = self.hung, False
        self._loop = None
        return was_hung

    async def wait_released(self, on_silent: Callable[[], None]) -> None:
        """Wait until the worker has ended; call `on_silent` if it hangs or has hung meanwhile."""

        async def wait_silent() -> None:
            await self._silent.wait()
            on_silent()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_silent)
            await self.released.wait()
            nursery.cancel_scope.cancel("the worker has ended")

    def _report(self, report: LoopEnded | JobCrashed | WorkerSilent) -> None:
        if isinstance(report, WorkerSilent):
            self.hung = True
            self.unload()
            self._silent.set()
            self._control.send(report)
            return
        self.released.set()
        crashed = isinstance(report, JobCrashed)
        self._control.send(LoopEnded(model_crashed(self._key.model)) if crashed else report)
