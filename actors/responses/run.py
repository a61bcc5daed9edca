"""One response from its request to what is stored of it."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from greenroom.actors.responses.event_log import EventLog
from greenroom.actors.responses.run_lifecycle import check_step, decide_end
from greenroom.schemas.events import (
    Admitted,
    Failed,
    Finished,
    InferenceEvent,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from greenroom.schemas.problems import Problem
from greenroom.schemas.responses_protocol import (
    Heartbeat,
    Hold,
    RunEnded,
    RunEvent,
    RunOutcome,
    RunStarted,
    StartRun,
)
from greenroom.schemas.stored import UNFINISHED, ResponseStatus, StoredResponse

HEARTBEAT = 10.0
"""Seconds of silence after which readers are shown that the answer is still coming."""


class Run:
    """What is known of a run, and the decisions that follow from it; what it waits for is its task's affair.

    Attributes:
        log: Its events, for whoever reads them.
        status: How it stands.
        row: Its unfinished row as it is stored; None if it is not.
        readers: Subscriptions that are open.
        scope: Around what can be cancelled of its task: all but the storing.
    """

    def __init__(self, asked: StartRun) -> None:
        self.asked = asked
        self.log = EventLog()
        self.status: ResponseStatus = "queued"
        self.row: StoredResponse | None = None
        self.readers = 0
        self.scope = trio.CancelScope()
        self._hold: Hold | None = asked.hold.take() if asked.hold is not None else None
        self._admitted = False
        self._prompt: Admitted | None = None
        self._finished: Finished | None = None
        self._problem: Problem | None = None
        self._last_entry = trio.current_time()
        self._on_end: list[Callable[[RunEnded | Failed], None]] = []

    @property
    def accepted(self) -> bool:
        """Whether its request fits its model, as far as is known."""
        return self._admitted

    @property
    def answered(self) -> bool:
        """Whether nothing more will come of the model."""
        return self._finished is not None or self._problem is not None

    @property
    def refusal(self) -> Problem | None:
        """Why nothing of it is stored: it failed, or was cancelled, before it had begun in any way."""
        if self.row is not None or self.status != "queued":
            return None
        if self._problem is not None or self._admitted:
            return self._problem
        return Problem(409, "response_cancelled", "The response was cancelled before it had begun.")

    def take(self, event: InferenceEvent) -> None:
        """Take in what the model, or the pool, has sent."""
        match event:
            case TextDelta() | ReasoningDelta() | ToolCallDelta():
                self._start()
                self._append(event)
            case PromptProgress():
                self._start()
            case Finished():
                self._start()
                self._finished = event
            case Failed(problem):
                self.fail(problem)
            case Admitted():
                self._admitted, self._prompt = True, event
                self._append(event)
            case QueueStatus():
                pass

    def fail(self, problem: Problem) -> None:
        """Let it have failed, unless it is complete."""
        if not self.answered:
            self._problem = problem

    def cancel(self) -> None:
        """Have its generation end; what it has written is stored."""
        self.scope.cancel("the response is cancelled")

    def leave(self) -> None:
        """Note that a subscription has closed; a run in the foreground ends with its last one."""
        self.readers -= 1
        if not self.readers and not self.asked.background:
            self.cancel()

    def show_life(self) -> None:
        """Append a heartbeat if its readers have waited for long; none while it is being stored."""
        silent = trio.current_time() - self._last_entry
        if silent >= HEARTBEAT and not self.answered and not self.scope.cancel_called:
            self._append(Heartbeat())

    def snapshot(self) -> StoredResponse:
        """Return how it stands, without what it has written."""
        status = self.status if self.status in UNFINISHED else "in_progress"
        events = () if self._prompt is None else (self._prompt,)
        return self.asked.record(RunOutcome(status, self.log.model, events))

    def decide(self) -> RunOutcome:
        """Return what has become of it."""
        self.status = check_step(self.status, decide_end(self._finished, self._problem))
        return self._outcome(self._problem)

    def fail_storing(self, problem: Problem) -> RunOutcome:
        """Return what has become of it, given that the outcome cannot be stored."""
        if self.status != "failed":
            self.status = check_step(self.status, "failed")
        return self._outcome(problem)

    def when_ended(self, call: Callable[[RunEnded | Failed], None]) -> None:
        """Call, once, when it has ended and been stored."""
        self._on_end.append(call)

    def end(self, event: RunEnded | Failed) -> None:
        """Append the last entry, give its conversation free, and tell those who wait for that."""
        self.release()
        self.log.end(event)
        for call in self._on_end:
            call(event)
        self._on_end.clear()

    def release(self) -> None:
        """Give its conversation free."""
        if self._hold is not None:
            self._hold.close()

    def _start(self) -> None:
        if self.status == "queued":
            self._admitted = True
            self.status = check_step(self.status, "in_progress")
            self._append(RunStarted())

    def _append(self, event: RunEvent) -> None:
        self._last_entry = trio.current_time()
        self.log.append(event)

    def _outcome(self, problem: Problem | None) -> RunOutcome:
        events: list[InferenceEvent] = [
            event
            for event in self.log.entries()
            if isinstance(event, Admitted | TextDelta | ReasoningDelta | ToolCallDelta)
        ]
        if self._finished is not None:
            events.append(self._finished)
        return RunOutcome(self.status, self.log.model, events, problem, time.time())
