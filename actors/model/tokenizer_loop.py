"""What a model's tokenizer worker does: one job, with a tokenizer that no other thread touches."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import attrs
import structlog

from greenroom.actors.engines import Engines, OpenedModel
from greenroom.actors.model.preparations import Preparation
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.problems import Problem, ProblemError, internal_error, load_failed

log = structlog.get_logger()


@attrs.frozen(eq=False)
class Opened:
    """Prompts can be prepared from now on."""

    opened: OpenedModel


@attrs.frozen(eq=False)
class PromptPrepared:
    """What became of a preparation; None if nobody waited for it any more."""

    preparation: Preparation
    result: PreparedInput | Problem | None


@attrs.frozen
class TokenizerLoopEnded:
    """No more prompts are prepared.

    Args:
        problem: Why, unless it was told to end.
    """

    problem: Problem | None = None


TokenizerReport = Opened | PromptPrepared


class TokenizerLoop:
    """Opens a model's files and prepares prompts until told to end.

    Everything public may be used from any thread.

    Args:
        report: Takes reports from this thread; must not block.
    """

    def __init__(self, key: ModelKey, engines: Engines, report: Callable[[TokenizerReport], None]) -> None:
        self._key = key
        self._engines = engines
        self._report = report
        self._preparations: SimpleQueue[Preparation | None] = SimpleQueue()

    def put(self, preparation: Preparation) -> None:
        """Prepare a prompt when those before it are done, unless nobody waits for it by then."""
        self._preparations.put(preparation)

    def end(self) -> None:
        """End after the prompt in hand."""
        self._preparations.put(None)

    def run(self) -> TokenizerLoopEnded:
        """Do the job; never raises."""
        try:
            opened = self._engines.open_model(self._key.model)
        except ProblemError as error:
            return TokenizerLoopEnded(error.problem)
        except Exception as error:
            log.exception("open failed", actor="model", model=str(self._key))
            return TokenizerLoopEnded(load_failed(self._key.model, str(error) or type(error).__name__))
        self._report(Opened(opened))
        while (preparation := self._preparations.get()) is not None:
            result = None if preparation.reply.closed else self._prepare(opened, preparation)
            self._report(PromptPrepared(preparation, result))
            del preparation, result
        return TokenizerLoopEnded()

    def _prepare(self, opened: OpenedModel, preparation: Preparation) -> PreparedInput | Problem:
        try:
            return opened.adapter.prepare_input(preparation.request)
        except ProblemError as error:
            return error.problem
        except Exception:
            request_id = preparation.request.id
            log.exception("prepare failed", actor="model", model=str(self._key), request_id=request_id)
            return internal_error()
