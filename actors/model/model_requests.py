"""The requests of a model, from the first message to the engine's last event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.engines.engine_protocol import SuspendedRequest
from greenroom.actors.model.model_loop import Cancel, Command, Resume, Submit
from greenroom.actors.model.running_requests import (
    AdapterResult,
    Preparation,
    Preparations,
    RequestRecords,
    RunningRequest,
    RunningRequests,
)
from greenroom.schemas.events.events import Admitted, InferenceEvent
from greenroom.schemas.messages.prepared_input import PreparedInput, PreparedPrompt
from greenroom.schemas.problems import Problem, ProblemError
from greenroom.schemas.protocols.model_protocol import Generate, PromptContents, RequestEnded


@attrs.frozen(eq=False)
class ReplyClosed:
    """The report that a request's reply is closed: it has ended, or its client has disconnected."""

    request: Preparation | RunningRequest


class ModelRequests:
    """The requests of a model: prepared by one worker, answered by the other.

    Args:
        prepare: Callback that passes a request to the tokenizer worker.
        put: Callback that passes a command to the engine's worker, if there is one.
        on_closed: Callback for the closing of a request's reply; must not block.
        report_end: Callback for the end of a request that an engine was asked to answer; must not block.
    """

    def __init__(
        self,
        prepare: Callable[[Preparation], object],
        put: Callable[[Command], None],
        on_closed: Callable[[ReplyClosed], None],
        report_end: Callable[[RequestEnded], None],
        log: Any,
        records: RequestRecords | None = None,
    ) -> None:
        self._records = records or RequestRecords()
        self._prepare = prepare
        self._put = put
        self._on_closed = on_closed
        self._report_end = report_end
        self._log = log
        self._preparations = Preparations()
        self._running = RunningRequests()
        self._has_engine = self._accepting = False

    def start_engine(self) -> None:
        self._has_engine = self._accepting = True
        for running in self._running.all():
            command = running.release()
            if command is not None:
                self._put(command)

    def suspend(self) -> None:
        """Hold all further requests until the next engine is loaded."""
        self._has_engine = False

    def end_engine(
        self, suspended: Mapping[str, SuspendedRequest] | None, late: Iterable[Command], problem: Problem
    ) -> None:
        """Keep the requests that the next engine can resume, and fail the others.

        Call it before the pool learns of the end: the pool then counts open leases as waiting requests.

        Args:
            suspended: Suspended requests by id, in their order; None if no other engine can resume them.
        """
        self._has_engine = False
        for request_id, request in (suspended or {}).items():
            self._keep(Resume(request_id, request))
        for command in late:
            if isinstance(command, Submit | Resume):
                self._keep(command)
        if suspended is None:
            self.fail_running(problem)
            return
        self._running.put_first(suspended)
        for running in self._running.all():
            if running.kept is None and not running.cancelled:
                running.fail(problem)
            if running.kept is None or running.cancelled:
                self._remove(running)

    def prepare(self, preparation: Preparation) -> None:
        """Queue a request for preparation, and keep it until its reply closes."""
        if not preparation.rendering:
            self._records.prepare(preparation)
        self._preparations.add(preparation)
        preparation.reply.watch(lambda: self._on_closed(ReplyClosed(preparation)))
        self._prepare(preparation)

    def record_prepared(self, preparation: Preparation, result: AdapterResult | Problem | None) -> None:
        """Keep, submit or report a prepared request, unless its client has left."""
        if preparation not in self._preparations:
            return
        self._records.prepared(preparation.request.id, result)
        if isinstance(result, Problem):
            preparation.reply.fail(result)
        elif isinstance(result, PromptContents):
            preparation.reply.send(result)
            preparation.reply.end()
        elif result is not None:
            self._record_charged(preparation, result)

    def _record_charged(self, preparation: Preparation, result: PreparedInput) -> None:
        try:
            answer = result.max_tokens if isinstance(result, PreparedPrompt) else 0
            self._records.charge(preparation, result.prompt_tokens + result.choices * answer)
        except ProblemError as error:
            preparation.reply.fail(error.problem)
            return
        if preparation.generate is not None:
            self._submit(preparation, preparation.generate, result)
        else:
            preparation.prepared = result
            told = result.prompt_tokens, result.dropped_messages, result.system_prompt, result.parameters
            preparation.reply.send(Admitted(*told, result.notice))

    def generate(self, message: Generate, reply: Reply, problem: Problem) -> None:
        """Submit a request to the engine, as soon as it is prepared; fail it if there will be no engine."""
        preparation = self._preparations.get(reply)
        if not self._accepting:
            reply.fail(problem)
        elif preparation is None:
            self.prepare(Preparation(message.request, reply, generate=message))
        elif preparation.prepared is None:
            preparation.generate = message
        else:
            self._submit(preparation, message, preparation.prepared)

    def deliver(self, events: Iterable[tuple[str, InferenceEvent]]) -> None:
        if readers := self._records.readers:
            events = list(events)
            for engine_id, event in events:
                if (running := self._running.get(engine_id)) is not None:
                    for read in readers:
                        read(running.request_id, event)
        for ended in self._running.deliver(events):
            self._record_end(ended)

    def close(self, request: Preparation | RunningRequest) -> None:
        if isinstance(request, Preparation):
            if request in self._preparations:
                self._records.settle(request)
            self._preparations.remove(request)
        elif self._running.cancel(request):
            if request.kept is None:
                self._put(Cancel(request.request.id))
            else:
                self._remove(request)

    def fail_all(self, problem: Problem) -> None:
        """Fail every request; this cancels running ones, which are logged after their last event."""
        self._accepting = self._has_engine
        self.fail_unprepared(problem)
        for running in self._running.all():
            running.fail(problem)

    def fail_unprepared(self, problem: Problem) -> None:
        for preparation in self._preparations.remove_pending():
            preparation.reply.fail(problem)

    def end(self, problem: Problem) -> None:
        """Fail every request, because the actor ends."""
        self.fail_unprepared(problem)
        self.fail_running(problem)

    def fail_running(self, problem: Problem) -> None:
        """Fail the requests that generate or were about to, because their engine is gone."""
        self._has_engine = self._accepting = False
        for preparation in self._preparations.remove_generating():
            preparation.reply.fail(problem)
        for running in self._running.all():
            if not running.cancelled:
                running.fail(problem)
            self._remove(running)

    def _submit(self, preparation: Preparation, message: Generate, prepared: PreparedInput) -> None:
        self._preparations.remove(preparation)
        if preparation.reply.closed:
            self._records.settle(preparation)
            return
        running = self._running.add(message, prepared, preparation.reply)
        running.kept, running.charged = Submit(running.request, prepared), preparation.charged
        self._records.submit(running)
        if self._has_engine and (command := running.release()) is not None:
            self._put(command)
        preparation.reply.watch(lambda: self._on_closed(ReplyClosed(running)))
        self._log.info(
            "request admitted", request_id=running.request_id, prompt_tokens=prepared.prompt_tokens
        )

    def _keep(self, command: Submit | Resume) -> None:
        """Keep a request for the next engine, unless it failed when its engine hung."""
        running = self._running.get(command.request_id)
        if running is not None:
            running.kept = command
        elif isinstance(command, Resume):
            command.suspended.close()

    def _remove(self, running: RunningRequest) -> None:
        self._running.remove(running)
        self._record_end(running)
        if isinstance(running.kept, Resume):
            running.kept.suspended.close()

    def _record_end(self, running: RunningRequest) -> None:
        running.log_end(self._log)
        self._report_end(ended := running.ended())
        self._records.end(running, ended)
