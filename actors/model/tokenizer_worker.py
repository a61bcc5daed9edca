"""The thread that prepares a model's prompts, and its replacement when it hangs or panics."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.engines.engines import Engines
from greenroom.actors.model.preparations import Preparation
from greenroom.actors.model.tokenizer_loop import TokenizerLoop, TokenizerLoopEnded
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import (
    Problem,
    load_failed,
    tokenizer_crashed,
    tokenizer_hung,
    tokenizers_hung,
)

MAX_HUNG = 3
"""Maximum number of hung threads per model before it prepares no more prompts; each may keep a core busy."""


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


@attrs.frozen(eq=False)
class TokenizerOutcome:
    """The outcome of a borrowed thread, for `TokenizerWorker.record` in the actor's own task."""

    loop: TokenizerLoop
    outcome: TokenizerLoopEnded | JobCrashed | WorkerSilent


class TokenizerWorker:
    """The model's tokenizer thread, at most one at a time.

    If a thread is lost, its current prompt fails, and the next thread prepares the remaining prompts with its
    own tokenizer. `control` receives the thread's reports, and learns when there is no thread.
    """

    def __init__(self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any]) -> None:
        self._key = key
        self._engines = engines
        self._workers = workers
        self._control = control
        self._loop: TokenizerLoop | None = None

    def start(self) -> None:
        """Borrow a thread and open the model's files on it, unless too many threads hang."""
        hung = self._workers.hung("tokenizer")[str(self._key)]
        if hung >= MAX_HUNG:
            problem = tokenizers_hung(self._key.model, hung)
            self._control.send(PreparingFailed(problem, given_up=True))
            return
        self._loop = loop = TokenizerLoop(self._key, self._engines, self._control.send_from_thread)

        def report(outcome: TokenizerLoopEnded | JobCrashed | WorkerSilent) -> None:
            self._control.send(TokenizerOutcome(loop, outcome))

        self._workers.lend("tokenizer", loop.run, report, str(self._key))

    def put(self, preparation: Preparation) -> None:
        """Queue a prompt for preparation, which is skipped if its client leaves before."""
        if self._loop is None:
            self.start()
        if self._loop is not None:
            self._loop.put(preparation)

    def end(self) -> None:
        """End the thread after the queued prompts."""
        if self._loop is not None:
            self._loop.end()
            self._loop = None

    def record(self, ended: TokenizerOutcome) -> None:
        """Record a thread's outcome: replace a lost thread, or start one when a hung thread has returned."""
        loop = ended.loop
        if loop is not self._loop:  # it was replaced or abandoned before
            if self._loop is None:
                self.start()
            return
        self._loop = None
        match ended.outcome:
            case TokenizerLoopEnded(problem):
                if problem is not None:
                    self._control.send(PreparingFailed(problem))
            case JobCrashed(reason=reason):
                self._replace(loop, tokenizer_crashed(self._key.model, reason))
            case WorkerSilent(seconds) if not loop.opened:
                detail = f"opening its files gave no sign of life for {seconds:g} seconds."
                self._control.send(PreparingFailed(load_failed(self._key.model, detail)))
            case WorkerSilent(seconds):
                problem = tokenizer_hung(self._key.model, seconds)
                self._control.send(PreparingFailed(problem, final=False))
                self._replace(loop, problem)

    def _replace(self, lost: TokenizerLoop, problem: Problem) -> None:
        """Fail the current prompt of a lost thread, and start another thread for the rest."""
        if lost.in_hand is not None:
            lost.in_hand.reply.fail(problem)
        waiting = lost.pop_waiting()
        self.start()
        for preparation in waiting:
            self.put(preparation)
