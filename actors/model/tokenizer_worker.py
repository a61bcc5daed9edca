"""The thread that prepares a model's prompts, and the one that takes over when it hangs or panics."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.engines import Engines
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
"""Threads of one model that may hang over prompts before it prepares no more: each may keep a core busy."""


@attrs.frozen
class PreparingFailed:
    """No thread prepares prompts now.

    Args:
        final: None will be started for those who wait.
        given_up: None for later requests either, until one that hangs comes back.
    """

    problem: Problem
    final: bool = True
    given_up: bool = False


@attrs.frozen(eq=False)
class TokenizerOutcome:
    """What became of a thread that was borrowed: for `TokenizerWorker.record`, in the actor's own task."""

    loop: TokenizerLoop
    outcome: TokenizerLoopEnded | JobCrashed | WorkerSilent


class TokenizerWorker:
    """At most one thread that takes prompts.

    The prompt over which a thread was lost fails; those behind it are prepared by the next, with a tokenizer
    of its own. `control` is told what the thread does, and when there is none.
    """

    def __init__(self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any]) -> None:
        self._key = key
        self._engines = engines
        self._workers = workers
        self._control = control
        self._loop: TokenizerLoop | None = None

    def start(self) -> None:
        """Borrow a thread and open the model's files on it, unless too many hang already."""
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
        """Prepare a prompt when those before it are done, unless nobody waits for it by then."""
        if self._loop is None:
            self.start()
        if self._loop is not None:
            self._loop.put(preparation)

    def end(self) -> None:
        """End the thread after the prompt in hand."""
        if self._loop is not None:
            self._loop.end()
            self._loop = None

    def record(self, ended: TokenizerOutcome) -> None:
        """Have another thread take over from one that was lost; begin again when one has come back."""
        loop = ended.loop
        if loop is not self._loop:  # it had been given up
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
        """Fail the prompt over which a thread was lost, and have another prepare the rest."""
        if lost.in_hand is not None:
            lost.in_hand.reply.fail(problem)
        waiting = lost.pop_waiting()
        self.start()
        for preparation in waiting:
            self.put(preparation)
