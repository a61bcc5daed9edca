"""The thread that prepares a model's prompts, and its replacement when it hangs or panics."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import attrs
import structlog

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import SupervisedWorker, Workers
from greenroom.actors.core.worker_thread import Heartbeat
from greenroom.actors.engines.engine_protocol import CooperativeAdapter, CooperativeRenderer, RenderingAdapter
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.model.prompt_queue import PromptQueue, QueuedPrompt, cost_of
from greenroom.actors.model.running_requests import AdapterResult, Preparation
from greenroom.engine.resources.preparation_steps import PENDING
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.messages import check_text
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.kinds import wrong_kind
from greenroom.schemas.problems import (
    Problem,
    ProblemError,
    internal_error,
    load_crashed,
    load_failed,
    tokenizer_crashed,
    tokenizer_hung,
    tokenizers_hung,
)
from greenroom.schemas.protocols.download_protocol import DownloadProgress

log = get_logger()


@attrs.frozen(eq=False)
class Opened:
    opened: OpenedModel


@attrs.frozen(eq=False)
class PromptPrepared:
    """The result of a preparation; None if its client has left."""

    preparation: Preparation
    result: AdapterResult | Problem | None


@attrs.frozen
class TokenizerLoopEnded:
    """The end of the loop. `problem`: problem that ended the loop; None if it was told to end."""

    problem: Problem | None = None


TokenizerReport = Opened | PromptPrepared | DownloadProgress


@attrs.define(eq=False)
class _Begun:
    """A preparation queued for this thread. `steps`: generator of its remaining steps, once started; for this
    thread only; `pending`: True while it waits for other work.
    """

    preparation: Preparation
    steps: Generator[object, None, AdapterResult] | None = None
    pending: bool = False


class TokenizerLoop:
    """A job that opens a model's files and prepares prompts until told to end.

    All public methods may be called on any thread.

    Args:
        report: Callback for reports, on this thread; must not block.

    Attributes:
        opened: True once the model's files are open.
        in_hand: Preparation in progress; None if there is none.
    """

    def __init__(self, key: ModelKey, engines: Engines, report: Callable[[TokenizerReport], None]) -> None:
        self.opened = self._abandoned = False
        self.in_hand: Preparation | None = None
        self._key = key
        self._engines = engines
        self._report = report
        self._preparations: PromptQueue[_Begun] = PromptQueue()

    def put(self, preparation: Preparation) -> None:
        """Queue a prompt for preparation, which is skipped if its client leaves before."""
        request = preparation.request
        self._preparations.put(_Begun(preparation), cost_of(request), request.client)

    def end(self) -> None:
        self._preparations.end()

    def abandon(self) -> list[Preparation]:
        """End the loop after the current prompt; return the queued ones, whose partial results are lost."""
        self._abandoned = True
        waiting = [begun.preparation for begun in self._preparations.clear()]
        self.end()
        return waiting

    def run(self, heartbeat: Heartbeat) -> TokenizerLoopEnded:
        """Run the job, sending heartbeats. A BaseException that is no Exception in a preparation ends it.
        Raises BaseException: A library has panicked; its tokenizer must not be used again.
        """
        with structlog.contextvars.bound_contextvars(actor="model", model=str(self._key)):
            return self._run(heartbeat)

    def _run(self, heartbeat: Heartbeat) -> TokenizerLoopEnded:
        try:
            heartbeat.pause()
            files = self._engines.fetch(self._key.model, self._report)
            heartbeat.beat()
            opened = self._engines.open_model(files)
        except ProblemError as error:
            return TokenizerLoopEnded(error.problem)
        except BaseException as error:
            log.exception("open failed", actor="model", model=str(self._key))
            return TokenizerLoopEnded(load_crashed(self._key.model, error))
        self.opened = True
        if not self._abandoned:
            self._report(Opened(opened))
        while (queued := self._next(heartbeat)) is not None:
            begun = queued.prompt
            self.in_hand = begun.preparation
            result = None if begun.preparation.reply.closed else self._prepare(opened, begun)
            self.in_hand = None
            if isinstance(result, _Begun):
                self._preparations.put_back(queued, behind=begun.pending)
            else:
                self._report(PromptPrepared(begun.preparation, result))
            del queued, begun, result
        return TokenizerLoopEnded()

    def _next(self, heartbeat: Heartbeat) -> QueuedPrompt[_Begun] | None:
        heartbeat.pause()
        queued = self._preparations.take()
        heartbeat.beat()
        return queued

    def _prepare(self, opened: OpenedModel, begun: _Begun) -> AdapterResult | Problem | _Begun:
        """Prepare a request, or run one step of it and return `begun` because there is more to do."""
        adapter, preparation = opened.adapter, begun.preparation
        request = preparation.request
        try:
            if begun.steps is None and preparation.rendering:
                if isinstance(adapter, CooperativeRenderer):
                    begun.steps = adapter.render_in_steps(request)
                elif isinstance(adapter, RenderingAdapter):
                    return adapter.render_prompt(request)
                else:
                    return wrong_kind(opened.id, opened.record.model_type, request.input)
            elif begun.steps is None:
                if not isinstance(adapter, CooperativeAdapter):
                    return adapter.prepare_input(request)
                begun.steps = adapter.prepare_in_steps(request)
            try:
                begun.pending = next(begun.steps) == PENDING
            except StopIteration as end:
                result: AdapterResult = end.value
                return result
            return begun
        except ProblemError as error:
            return error.problem
        except Exception:
            if (problem := _lone_surrogate(request)) is not None:
                return problem
            request_id = preparation.request.id
            log.exception("prepare failed", actor="model", model=str(self._key), request_id=request_id)
            return internal_error()


def _lone_surrogate(request: InferenceRequest) -> Problem | None:
    """Return the problem of a request whose text no tokenizer can take; None for any other request.

    Only a program's own request can have such text, so it is searched for after a failure.
    """
    try:
        check_text("", request.input)
    except ProblemError as error:
        return error.problem
    return None


@attrs.frozen
class PreparingFailed:
    """The report that no thread prepares prompts now.

    Args:
        final: True if no thread will be started for the waiting requests.
        given_up: True if none will be started for later requests either, until a hung thread returns.
    """

    problem: Problem
    final: bool = True
    given_up: bool = False


class TokenizerWorker(SupervisedWorker[TokenizerLoop, Preparation]):
    """The model's tokenizer thread; each thread has a tokenizer of its own.

    `control` also learns when there is no thread (`PreparingFailed`).

    Attributes:
        opened: The model's files, as a thread has opened them; None before.
    """

    purpose = "tokenizer"

    def __init__(self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any]) -> None:
        super().__init__(workers, control, str(key))
        self._key = key
        self._engines = engines
        self.opened: OpenedModel | None = None
        self._reopens = False

    def current(self, *, reopens: bool, in_use: bool) -> OpenedModel | None:
        """Return the opened files; None while they are opened.

        Args:
            reopens: True to have them opened again, since settings have changed. Another thread then opens
                them, and prepares all prompts that are not begun yet.
            in_use: True if an engine has been loaded from the files, which stay until it ends.
        """
        self._reopens |= reopens
        if self._reopens and not in_use:
            self._reopens, self.opened = False, None
            loop, self._loop = self._loop, None
            if loop is not None:
                self._restart(loop.abandon())
        return self.opened

    def _open_loop(self) -> TokenizerLoop:
        return TokenizerLoop(self._key, self._engines, self._control.send_from_thread)

    def _crash_problem(self, reason: str) -> Problem:
        return tokenizer_crashed(self._key.model, reason)

    def _on_silent(self, loop: TokenizerLoop, seconds: float) -> None:
        if not loop.opened:
            loop.abandon()  # so that the thread ends when it returns
            detail = f"opening its files gave no sign of life for {seconds:g} seconds."
            self._control.send(PreparingFailed(load_failed(self._key.model, detail)))
            return
        problem = tokenizer_hung(self._key.model, seconds)
        self._control.send(PreparingFailed(problem, final=False))
        self._replace(loop, problem)

    def _on_given_up(self, hung: int) -> None:
        self._control.send(PreparingFailed(tokenizers_hung(self._key.model, hung), given_up=True))

    def _on_returned(self) -> None:
        self.start()

    def _on_ended(self, end: TokenizerLoopEnded) -> None:
        if end.problem is not None:
            self._control.send(PreparingFailed(end.problem))

    def _restart(self, waiting: list[Preparation]) -> None:
        self.start()  # The next request should not wait until the model's files are open.
        super()._restart(waiting)
