"""The requests that a model generates for, and their log lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.engines.engines import Engines
from greenroom.actors.model.model_loop import Command, Submit
from greenroom.actors.records.audit import AuditBook, TokenMeter
from greenroom.actors.records.inspector import Inspector
from greenroom.schemas.events.events import Failed, Finished, FinishReason, InferenceEvent, Timing, Usage
from greenroom.schemas.events.explanation import Explanation, Waits
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.prepared_input import PreparedInput, PreparedPrompt
from greenroom.schemas.messages.requests import EmbeddingInput, InferenceRequest, ScoreInput
from greenroom.schemas.problems import Problem
from greenroom.schemas.protocols.model_protocol import Generate, PromptContents, RequestEnded


@attrs.define(eq=False)
class RunningRequest:
    """A request from its submission to its engine's last event, which may come after its client has left.

    Args:
        request: Request with an id that is unique among the running ones.
        prompt_tokens: Length of the prompt in tokens.
        queued: Time in seconds that it waited before its submission.
        started: Time of its submission, by `time.monotonic()`.
        kept: Command that starts or resumes it in the model's next engine; None while it is in one.
        cancelled: True if its engine has been told to end it.
        usage: Usage of the finished choices; None if there are none.
        explanation: Explanation of the finished choices; None if there is none.
        charged: Tokens that were charged to its client.
    """

    request: InferenceRequest
    request_id: str
    reply: Reply
    prompt_tokens: int
    choices_left: int
    queued: float
    started: float = attrs.field(factory=time.monotonic)
    kept: Command | None = None
    cancelled: bool = False
    problem: Problem | None = None
    reason: FinishReason = "cancelled"
    usage: Usage | None = None
    timing: Timing | None = None
    waits: Waits = Waits()
    explanation: Explanation | None = None
    charged: int = 0

    def completed(self, event: Finished | Failed) -> Finished | Failed:
        """Return a choice's last event with the time that the request waited before its submission."""
        if event.timing is not None:
            timing = attrs.evolve(event.timing, queued=event.timing.queued + self.queued)
            event = attrs.evolve(event, timing=timing)
        if (told := event.explanation) is not None:
            told = attrs.evolve(told, waits=told.waits.plus(self.waits), chosen=self.request.chosen)
            event = attrs.evolve(event, explanation=told)
        return event

    def told(self, event: Finished | Failed) -> Finished | Failed:
        """Return a choice's last event as its client gets it: without tokens, and explained only if asked."""
        explanation = event.explanation if self.request.explained else None
        if isinstance(event, Finished):
            return attrs.evolve(event, explanation=explanation, tokens=())
        return attrs.evolve(event, explanation=explanation)

    def record_end(self, event: Finished | Failed) -> bool:
        """Record the end of a choice or of the whole request; return whether the request has ended."""
        if event.usage is not None:
            self.usage = event.usage if self.usage is None else self.usage.plus(event.usage)
        self.timing = event.timing or self.timing
        self._explain(event)
        if isinstance(event, Failed):
            self.problem = self.problem or event.problem
            return True
        self.reason = event.reason
        self.choices_left -= 1
        return self.choices_left == 0

    def _explain(self, event: Finished | Failed) -> None:
        if self.explanation is None or event.explanation is None:
            self.explanation = event.explanation or self.explanation
        elif isinstance(event, Finished) and event.index == 0:
            self.explanation = event.explanation.plus(self.explanation)
        else:
            self.explanation = self.explanation.plus(event.explanation)

    def release(self) -> Command | None:
        """Remove and return the command for a newly loaded engine; None if the request is in an engine."""
        kept, self.kept = self.kept, None
        if isinstance(kept, Submit):
            waited = time.monotonic() - self.started
            self.queued += waited
            self.waits = self.waits.plus(Waits(loading=waited))
        return kept

    def fail(self, problem: Problem) -> None:
        self.problem = self.problem or problem
        self.reply.fail(problem)

    def ended(self) -> RequestEnded:
        asked = self.request.input
        return RequestEnded(
            self.reason if self.problem is None else None,
            None if self.problem is None else self.problem.code,
            self.usage or Usage(),
            self.timing,
            texts=len(asked.texts) if isinstance(asked, EmbeddingInput) else 0,
            documents=len(asked.pairs) if isinstance(asked, ScoreInput) else 0,
            adapter="" if self.request.applied is None else self.request.applied.name,
        )

    def figures(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"request_id": self.request_id, "prompt_tokens": self.prompt_tokens}
        if self.usage is not None:
            fields |= self.usage.amounts()
        timing = self.timing or Timing(queued=self.queued)
        if generated := fields.get("generated_tokens"):
            fields["tokens_per_second"] = round(generated / timing.decode, 1) if timing.decode else 0
        fields |= {f"{name}_seconds": round(spent, 4) for name, spent in attrs.asdict(timing).items()}
        fields["seconds"] = round(time.monotonic() - self.started, 4)
        if self.explanation is not None:
            fields |= self.explanation.log_fields()
        if self.request.chosen:
            fields["chosen"] = self.request.chosen
        return fields

    def log_end(self, log: Any) -> None:
        fields = self.figures()
        if self.problem is not None:
            # Only the client learns the details of its own mistake.
            detail = {"detail": self.problem.detail} if self.problem.status >= 500 else {}
            log.warning("request failed", problem=self.problem.code, **detail, **fields)
        else:
            log.info("request finished", reason=self.reason, **fields)


class RunningRequests:
    def __init__(self) -> None:
        self._by_id: dict[str, RunningRequest] = {}
        self._repeated = 0

    def add(self, message: Generate, prepared: PreparedInput, reply: Reply) -> RunningRequest:
        """Add a request until its last event; ids repeated by clients are made unique."""
        request_id = engine_id = message.request.id
        while engine_id in self._by_id:
            self._repeated += 1
            engine_id = f"{request_id}#{self._repeated}"
        request = attrs.evolve(message.request, id=engine_id)
        running = RunningRequest(
            request,
            request_id,
            reply,
            prepared.prompt_tokens,
            prepared.choices,
            message.queued,
            waits=message.waits,
        )
        self._by_id[request.id] = running
        return running

    def deliver(self, events: Iterable[tuple[str, InferenceEvent]]) -> list[RunningRequest]:
        """Send a step's events to their requests' replies; return the requests that have ended."""
        ended: list[RunningRequest] = []
        for engine_id, event in events:
            running = self._by_id.get(engine_id)
            if running is None:
                continue
            if not isinstance(event, (Finished, Failed)):
                running.reply.send(event)
                continue
            event = running.completed(event)
            running.reply.send(running.told(event))
            if running.record_end(event):
                del self._by_id[engine_id]
                running.reply.end()
                ended.append(running)
        return ended

    def cancel(self, running: RunningRequest) -> bool:
        """Mark a request as cancelled; return whether its engine must be told."""
        if running.cancelled or self._by_id.get(running.request.id) is not running:
            return False
        running.cancelled = True
        # It was ended from outside, by an operator or a time limit; its client has not left.
        running.problem = running.problem or running.reply.problem
        return True

    def remove(self, running: RunningRequest) -> None:
        self._by_id.pop(running.request.id, None)

    def get(self, engine_id: str) -> RunningRequest | None:
        return self._by_id.get(engine_id)

    def put_first(self, engine_ids: Iterable[str]) -> None:
        """Move these requests to the front, in this order."""
        first = {name: self._by_id[name] for name in engine_ids if name in self._by_id}
        self._by_id = {**first, **self._by_id}

    def all(self) -> list[RunningRequest]:
        return list(self._by_id.values())


class RequestRecords:
    """Tells those who keep records of the requests of a model.

    Args:
        inspector: Inspector of the requests; None for none.
        audit: Audit of the requests; None for none.
        meter: Meter of the clients' tokens; None for none.
        log: Logger for prompts and answers, at `debug`; None to log none.
        explains: False if answers are explained to nobody.
        backend: Name of the remote that is asked for the answers; empty for none.

    Attributes:
        readers: Functions that keep the events of answers.
    """

    def __init__(
        self,
        inspector: Inspector | None = None,
        audit: AuditBook | None = None,
        meter: TokenMeter | None = None,
        log: Any = None,
        explains: bool = True,
        backend: str = "",
    ) -> None:
        self.explains, self._backend = explains, backend
        self._inspector = inspector
        self._audit = audit
        self._meter = meter
        self._log = log
        self.readers = tuple(_readers(inspector, audit, log))

    def prepare(self, preparation: Preparation) -> None:
        request = preparation.request
        if self._meter is not None:
            for leave in self._meter.begin(request.client, request.id):
                preparation.reply.watch(leave)
        if self._inspector is not None:
            self._inspector.prepare(request)

    def prepared(self, request_id: str, result: AdapterResult | Problem | None) -> None:
        if self._inspector is not None:
            _inspect_prepared(self._inspector, request_id, result)
        if self._log is not None and isinstance(result, PreparedPrompt):
            self._log.debug("prompt", request_id=request_id, text=result.rendered)

    def charge(self, preparation: Preparation, tokens: int) -> None:
        """Charge the tokens that a request may cost to its client. Raises ProblemError (429): the client has
        used up its tokens.
        """
        if self._meter is not None:
            self._meter.charge(preparation.request.client, tokens)
            preparation.charged += tokens

    def settle(self, request: Preparation | RunningRequest, used: int = 0) -> None:
        """Return the unused part of a request's charge, at its end."""
        if self._meter is not None:
            self._meter.settle(request.request.client, request.charged, used)

    def submit(self, running: RunningRequest) -> None:
        if self._inspector is not None:
            self._inspector.submit(running.request_id)
        if self._audit is not None:
            applied, model = running.request.applied, running.request.key.model
            self._audit.hold(running.request_id, model if applied is None else applied.name)

    def end(self, running: RunningRequest, ended: RequestEnded) -> None:
        """Record the end of a request that an engine, or a remote, was asked to answer."""
        if self._audit is not None:
            chosen = running.request.chosen
            self._audit.release(running.request_id, ended, backend=self._backend, chosen=chosen)
        self.settle(running, ended.usage.prompt + ended.usage.generated)
        if self._inspector is not None:
            figures = {"reason": running.reason, **running.figures()}
            self._inspector.end(running.request_id, figures, running.problem, running.explanation)


def records_of(engines: Engines, backend: str = "") -> RequestRecords:
    settings = engines.names.settings
    log = get_logger(actor="model") if settings.log_content else None
    return RequestRecords(engines.inspector, engines.audit, engines.meter, log, settings.explain, backend)


def _readers(
    inspector: Inspector | None, audit: AuditBook | None, log: Any
) -> Iterator[Callable[[str, InferenceEvent], None]]:
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


AdapterResult = PreparedInput | PromptContents
"""The result of an adapter: a prepared input, or a prompt to show."""


@attrs.define(eq=False)
class Preparation:
    """A request before generation.

    Args:
        prepared: Prepared input from the adapter; None until then.
        charged: Tokens that were charged to its client.
        rendering: True to show the prompt instead of generating.
    """

    request: InferenceRequest
    reply: Reply
    prepared: PreparedInput | None = None
    charged: int = attrs.field(default=0, kw_only=True)
    generate: Generate | None = None
    rendering: bool = attrs.field(default=False, kw_only=True)


class Preparations:
    """All preparations of a model.

    Their keys are replies: each request has its own reply, even if clients repeat ids, and every reply
    closes.
    """

    def __init__(self) -> None:
        self._by_reply: dict[Reply, Preparation] = {}

    def __contains__(self, preparation: Preparation) -> bool:
        return self._by_reply.get(preparation.reply) is preparation

    def add(self, preparation: Preparation) -> None:
        self._by_reply[preparation.reply] = preparation

    def get(self, reply: Reply) -> Preparation | None:
        return self._by_reply.get(reply)

    def remove(self, preparation: Preparation) -> None:
        if preparation in self:
            del self._by_reply[preparation.reply]

    def remove_pending(self) -> list[Preparation]:
        return self._remove([each for each in self._by_reply.values() if each.prepared is None])

    def remove_generating(self) -> list[Preparation]:
        return self._remove([each for each in self._by_reply.values() if each.generate is not None])

    def _remove(self, preparations: list[Preparation]) -> list[Preparation]:
        for preparation in preparations:
            del self._by_reply[preparation.reply]
        return preparations
