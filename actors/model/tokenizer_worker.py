"""The thread that prepares a model's prompts, and its replacement when it hangs or panics."""

from __future__ import annotations

from typing import Any

import attrs

from greenroom.actors.core.ref import Control
from greenroom.actors.core.supervised_worker import SupervisedWorker
from greenroom.actors.core.worker import Workers
from greenroom.actors.engines.engines import Engines, OpenedModel
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
