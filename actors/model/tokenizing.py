"""What a model's tokenising worker does: one job, with a tokenizer that no other thread touches."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

import attrs
import structlog

from greenroom.actors.core.reply import Reply
from greenroom.actors.engines import Engines, OpenedModel
from greenroom.schemas.events import Failed
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import Prepare, Prepared
from greenroom.schemas.problems import Problem, ProblemError, internal_error, load_failed

log = structlog.get_logger()


@attrs.frozen(eq=False)
class Opened:
    """Prompts can be prepared from now on."""

    opened: OpenedModel


@attrs.frozen(eq=False)
class PreparedReply:
    """The answer to one Prepare, on its way to the Trio thread; None if nobody waited for it any more."""

    reply: Reply
    answer: Prepared | Failed | None


@attrs.frozen
class TokenizingEnded:
    """No more prompts are prepared.

    Args:
        problem: Why, unless it was told to end.
    """

    problem: Problem | None = None


TokenisingReport = Opened | PreparedReply


class Tokenizing:
    """Opens a model's files and prepares prompts until told to end.

    Everything public may be used from any thread.

    Args:
        report: Takes reports from this thread; must not block.
    """

    def __init__(
        self,
        key: ModelKey,
        engines: Engines,
        report: Callable[[TokenisingReport], None],
    ) -> None:
        self._key = key
        self._engines = engines
        self._report = report
        self._prompts: SimpleQueue[tuple[Prepare, Reply] | None] = SimpleQueue()

    def put(self, message: Prepare, reply: Reply) -> None:
        """Prepare a prompt when those before it are done, unless nobody waits for it by then."""
        self._prompts.put((message, reply))

    def end(self) -> None:
        """End after the prompt in hand."""
        self._prompts.put(None)

    def run(self) -> TokenizingEnded:
        """The job; never raises."""
        try:
            opened = self._engines.open_model(self._key.model)
        except ProblemError as error:
            return TokenizingEnded(error.problem)
        except Exception as error:
            log.exception("open failed", actor="model", model=str(self._key))
            return TokenizingEnded(load_failed(self._key.model, str(error) or type(error).__name__))
        self._report(Opened(opened))
        while (item := self._prompts.get()) is not None:
            message, reply = item
            answer = None if reply.closed else self._prepare(opened, message)
            self._report(PreparedReply(reply, answer))
        return TokenizingEnded()

    def _prepare(self, opened: OpenedModel, message: Prepare) -> Prepared | Failed:
        try:
            return Prepared(opened.adapter.prepare_input(message.request))
        except ProblemError as error:
            return Failed(error.problem)
        except Exception:
            log.exception(
                "prepare failed", actor="model", model=str(self._key), request_id=message.request.id
            )
            return Failed(internal_error())
