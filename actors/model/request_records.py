"""Records of a model's requests outside of the log: for the inspector, the audit and the limits of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from greenroom.actors.audit.audit_book import AuditBook
from greenroom.actors.audit.token_meter import TokenMeter
from greenroom.actors.engines.engines import Engines
from greenroom.actors.inspection.inspector import Inspector
from greenroom.actors.model.preparations import AdapterResult, Preparation
from greenroom.actors.model.running_requests import RunningRequest
from greenroom.schemas.events.events import Finished, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import PreparedInput, PreparedPrompt
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import RequestEnded


class RequestRecords:
    """Tells those who keep records of the requests of a model.

    Args:
        inspector: Inspector of the requests; None for none.
        audit: Audit of the requests; None for none.
        meter: Meter of the clients' tokens; None for none.
        log: Logger for prompts and answers, at `debug`; None to log none.

    Attributes:
        readers: Functions that keep the events of answers.
    """

    def __init__(
        self,
        inspector: Inspector | None = None,
        audit: AuditBook | None = None,
        meter: TokenMeter | None = None,
        log: Any = None,
    ) -> None:
        self._inspector = inspector
        self._audit = audit
        self._meter = meter
        self._log = log
        self.readers = tuple(_readers(inspector, audit, log))

    def prepare(self, preparation: Preparation) -> None:
        """Record a request that is going to be prepared."""
        request = preparation.request
        if self._meter is not None:
            for leave in self._meter.begin(request.client, request.id):
                preparation.reply.watch(leave)
        if self._inspector is not None:
            self._inspector.prepare(request)

    def prepared(self, request_id: str, result: AdapterResult | Problem | None) -> None:
        """Record the prompt of a request, or the problem that it has none."""
        if self._inspector is not None:
            _inspect_prepared(self._inspector, request_id, result)
        if self._log is not None and isinstance(result, PreparedPrompt):
            self._log.debug("prompt", request_id=request_id, text=result.rendered)

    def charge(self, preparation: Preparation, prepared: PreparedInput) -> None:
        """Charge the tokens that a request may cost to its client.

        Raises:
            ProblemError: 429: the client has used up its tokens.
        """
        if self._meter is not None:
            answer = prepared.max_tokens if isinstance(prepared, PreparedPrompt) else 0
            tokens = prepared.prompt_tokens + prepared.choices * answer
            self._meter.charge(preparation.request.client, tokens)
            preparation.charged = tokens

    def settle(self, request: Preparation | RunningRequest, used: int = 0) -> None:
        """Return the unused part of a request's charge, at its end."""
        if self._meter is not None:
            self._meter.settle(request.request.client, request.charged, used)

    def submit(self, running: RunningRequest) -> None:
        """Record a request that an engine is asked to answer."""
        if self._inspector is not None:
            self._inspector.submit(running.request_id)
        if self._audit is not None:
            self._audit.hold(running.request_id, running.request.key.model)

    def end(self, running: RunningRequest, ended: RequestEnded) -> None:
        """Record the end of a request that an engine was asked to answer."""
        if self._audit is not None:
            self._audit.release(running.request_id, ended)
        self.settle(running, ended.usage.prompt + ended.usage.generated)
        if self._inspector is not None:
            figures = {"reason": running.reason, **running.figures()}
            self._inspector.end(running.request_id, figures, running.problem, running.explanation)


def records_of(engines: Engines) -> RequestRecords:
    log = get_logger(actor="model") if engines.names.settings.log_content else None
    return RequestRecords(engines.inspector, engines.audit, engines.meter, log)


def _readers(
    inspector: Inspector | None, audit: AuditBook | None, log: Any
) -> Iterator[Callable[[str, InferenceEvent], None]]:
    """Yield the functions that keep the events of answers."""
    if inspector is not None:
        yield inspector.event
    if audit is not None and audit.content:
        yield audit.event
    if log is not None:
        yield partial(_log_answer, log)


def _log_answer(log: Any, request_id: str, event: InferenceEvent) -> None:
    if isinstance(event, Finished):
        log.debug("answer", request_id=request_id, choice=event.index, text=event.raw)


def _inspect_prepared(inspector: Inspector, request_id: str, result: AdapterResult | Problem | None) -> None:
    if isinstance(result, PreparedPrompt):
        inspector.prompt(request_id, result.tokens, result.rendered)
    elif isinstance(result, Problem):
        inspector.end(request_id, {}, result)
