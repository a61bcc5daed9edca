"""The model actor: one model, the adapter that prepares its prompts, and two workers lent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
import trio

from greenroom.actors.core.ref import Control, Envelope, Inbox, Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.core.worker import Worker, Workers
from greenroom.actors.engines import Engines, OpenedModel
from greenroom.actors.model.control import (
    FailAll,
    Load,
    ModelStateChanged,
    ReplyClosed,
    Stop,
    Unload,
    WorkerStalled,
    watch_silence,
)
from greenroom.actors.model.lifecycle import Lifecycle
from greenroom.actors.model.model_loop import Cancel, Loaded, ModelLoop, Progressed, Stepped, Submit, Unloaded
from greenroom.actors.model.preparations import Preparation, Preparations
from greenroom.actors.model.running_requests import RunningRequest, RunningRequests
from greenroom.actors.model.tokenizer_loop import Opened, PromptPrepared, TokenizerLoop, TokenizerLoopEnded
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import (
    Generate,
    ModelMessage,
    Prepare,
    Prepared,
)
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.problems import Problem, draining, internal_error, model_crashed, model_hung


class Model:
    """Prepares prompts from the start, generates while it is READY. The pool says when to load and unload.

    Args:
        report: Takes `Changed` reports; must not block.
        silence: Seconds without a sign of life after which the worker counts as hung.
    """

    def __init__(
        self,
        key: ModelKey,
        engines: Engines,
        workers: Workers,
        report: Callable[[ModelStateChanged], None],
        *,
        silence: float,
    ) -> None:
        self.key = key
        self._inbox: Inbox[ModelMessage] = Inbox()
        self.ref: Ref[ModelMessage] = self._inbox.ref
        self._control: Control[Any] = Control()
        self._engines = engines
        self._workers = workers
        self._report = report
        self._silence = silence
        self._lifecycle = Lifecycle()
        self._running = RunningRequests()
        self._preparations = Preparations()
        self._tokenizer_loop = TokenizerLoop(key, engines, self._control.send_from_thread)
        self._opened: OpenedModel | None = None
        self._problem: Problem | None = None
        self._loop: ModelLoop | None = None
        self._worker: Worker | None = None
        self._progress = 0.0
        self._hung = False
        self._log = structlog.get_logger().bind(actor="model", model=str(key))

    def load(self) -> None:
        """Ask for weights; `Changed` tells when they are there."""
        self._control.send(Load())

    def unload(self) -> None:
        """Ask to free the weights."""
        self._control.send(Unload())

    def stop(self) -> None:
        """Ask the actor to end."""
        self._control.send(Stop())

    def cut(self, problem: Problem) -> None:
        """Fail every request that is under way."""
        self._control.send(FailAll(problem))

    async def run(self) -> None:
        """Receive until stopped."""
        self._log.info("started")
        problem = draining()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._inbox.forward, self._control)
                self._workers.lend("tokenizer", self._tokenizer_loop.run, self._control.send)
                await self._receive(nursery)
                nursery.cancel_scope.cancel("the model actor stops")
        except Exception:
            problem = model_crashed(self.key.model)
            raise
        finally:
            self._end(problem)

    async def _receive(self, nursery: trio.Nursery) -> None:
        while True:
            match await self._control.receive():
                case Envelope(message, reply):
                    self._receive_message(message, reply or Reply())
                case Stepped(events):
                    for ended in self._running.deliver(events):
                        ended.log_end(self._log)
                case ReplyClosed(RunningRequest() as running):
                    self._cancel(running)
                case ReplyClosed(Preparation() as preparation):
                    self._preparations.remove(preparation)
                case PromptPrepared(preparation, result):
                    self._on_prepared(preparation, result)
                case Stop():
                    return
                case report:
                    self._change(report, nursery)

    def _receive_message(self, message: ModelMessage, reply: Reply) -> None:
        self._log.debug("received", message=type(message).__name__)
        try:
            self._answer(message, reply)
        except Exception:
            # The asker is told, and the actor lives: one message must not end the requests of others.
            self._log.exception("message failed", message=type(message).__name__)
            reply.fail(internal_error())

    def _answer(self, message: ModelMessage, reply: Reply) -> None:
        match message:
            case Prepare(request):
                self._prepare(Preparation(request, reply))
            case Generate():
                self._generate(message, reply)

    def _prepare(self, preparation: Preparation) -> None:
        if self._opened is None and self._problem is not None:
            preparation.reply.fail(self._problem)
            return
        self._preparations.add(preparation)
        preparation.reply.watch(lambda: self._control.send(ReplyClosed(preparation)))
        self._tokenizer_loop.put(preparation)

    def _on_prepared(self, preparation: Preparation, result: PreparedInput | Problem | None) -> None:
        if preparation not in self._preparations:
            return
        match result:
            case PreparedInput() as prepared if preparation.generate is not None:
                self._submit(preparation, preparation.generate, prepared)
            case PreparedInput() as prepared:
                preparation.prepared = prepared
                preparation.reply.send(Prepared(prepared.prompt_tokens))
            case Problem() as problem:
                preparation.reply.fail(problem)

    def _generate(self, message: Generate, reply: Reply) -> None:
        if self._loop is None or self._lifecycle.state is not ModelState.READY:
            reply.fail(self._problem or model_crashed(self.key.model))
            return
        preparation = self._preparations.get(reply)
        if preparation is None:
            self._prepare(Preparation(message.request, reply, generate=message))
        elif preparation.prepared is None:
            preparation.generate = message
        else:
            self._submit(preparation, message, preparation.prepared)

    def _submit(self, preparation: Preparation, message: Generate, prepared: PreparedInput) -> None:
        self._preparations.remove(preparation)
        if preparation.reply.closed or self._loop is None:
            return
        running = self._running.add(message, prepared, preparation.reply)
        self._loop.put(Submit(running.request, prepared))
        preparation.reply.watch(lambda: self._control.send(ReplyClosed(running)))
        self._log.info(
            "request admitted", request_id=running.request_id, prompt_tokens=prepared.prompt_tokens
        )

    def _cancel(self, running: RunningRequest) -> None:
        if self._running.cancel(running) and self._loop is not None:
            self._loop.put(Cancel(running.request.id))

    def _change(self, report: Any, nursery: trio.Nursery) -> None:
        match report:
            case Opened(opened):
                self._opened = opened
                if self._lifecycle.state is ModelState.LOADING:
                    self._start_loop(opened, nursery)
            case Load():
                self._load(nursery)
            case Progressed(fraction):
                self._progress = fraction
                self._tell(progress=fraction)
            case Loaded():
                if self._lifecycle.state is ModelState.LOADING:
                    self._move(ModelState.READY)
            case Unload():
                self._unload()
            case Unloaded(problem, in_load):
                self._unloaded(problem, in_load)
            case TokenizerLoopEnded(problem):
                self._on_tokenizer_loop_ended(problem)
            case WorkerStalled(loop):
                self._quarantine(loop)
            case FailAll(problem):
                self._fail_all(problem)
            case _:
                raise TypeError(f"unexpected report {report!r}")

    def _load(self, nursery: trio.Nursery) -> None:
        self._problem, self._progress = (None if self._opened else self._problem), 0.0
        if self._problem is not None:
            self._tell(in_load=True)
            return
        self._lifecycle.to(ModelState.LOADING)
        if self._opened is not None:
            self._start_loop(self._opened, nursery)

    def _start_loop(self, opened: OpenedModel, nursery: trio.Nursery) -> None:
        loop = ModelLoop(self.key, self._engines, opened, self._control.send_from_thread)
        self._loop = loop
        self._worker = self._workers.lend("gpu", loop.run, self._control.send)
        nursery.start_soon(watch_silence, loop, self._silence, self._control)

    def _unload(self) -> None:
        if self._lifecycle.state not in (ModelState.LOADING, ModelState.READY):
            return
        self._lifecycle.to(ModelState.UNLOADING)
        if self._loop is None:
            self._move(ModelState.IDLE)
        else:
            self._loop.abandon()

    def _unloaded(self, problem: Problem | None, in_load: bool) -> None:
        self._loop = self._worker = None
        if self._hung:
            # The silent worker came back after all, and its thread has ended: the model may be loaded again.
            self._hung = False
            self._log.warning("hung worker ended")
            self._tell()
        elif problem is not None:
            self._problem = problem
            self._move(ModelState.ERROR, in_load=in_load)
        else:
            self._move(ModelState.IDLE)
        self._fail_running(problem or model_crashed(self.key.model))

    def _on_tokenizer_loop_ended(self, problem: Problem | None) -> None:
        if problem is None:
            return
        self._problem = problem
        if self._lifecycle.state is ModelState.LOADING:
            self._lifecycle.to(ModelState.ERROR)
        self._report(ModelStateChanged(self, ModelState.ERROR, problem, in_load=True))
        self._fail_preparations(problem)

    def _quarantine(self, loop: ModelLoop) -> None:
        if self._loop is not loop or self._worker is None:
            return
        self._log.error("worker hangs", worker=self._worker.name, silent_seconds=self._silence)
        self._workers.quarantine(self._worker)
        loop.abandon()
        self._hung = True
        self._problem = model_hung(self.key.model)
        self._move(ModelState.ERROR)
        self._fail_running(self._problem)

    def _move(self, state: ModelState, *, in_load: bool = False) -> None:
        self._lifecycle.to(state)
        self._tell(in_load=in_load)

    def _tell(self, *, in_load: bool = False, progress: float = 0.0) -> None:
        problem = self._problem
        state = self._lifecycle.state if problem is None else ModelState.ERROR
        self._report(ModelStateChanged(self, state, problem, in_load, self._hung, progress))

    def _fail_all(self, problem: Problem) -> None:
        """Fail every request; those that run are cancelled by it, and logged after their last event."""
        self._fail_preparations(problem)
        for running in self._running.all():
            running.fail(problem)

    def _fail_running(self, problem: Problem) -> None:
        """Fail every request that generates, now that its engine is gone."""
        for preparation in self._preparations.remove_generating():
            preparation.reply.fail(problem)
        for running in self._running.clear():
            if not running.cancelled:
                running.fail(problem)
            running.log_end(self._log)

    def _fail_preparations(self, problem: Problem) -> None:
        for preparation in self._preparations.remove_pending():
            preparation.reply.fail(problem)

    def _end(self, problem: Problem) -> None:
        self._fail_preparations(problem)
        self._fail_running(problem)
        self._tokenizer_loop.end()
        if self._loop is not None:
            self._loop.abandon()
        self._control.close(problem)
        self._log.info("stopped")
