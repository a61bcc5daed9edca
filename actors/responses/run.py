"""The state of a run: a response from its request to its stored form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import trio

from greenroom.actors.core.fair_share import Pot
from greenroom.actors.responses.event_log import ConversationLock, EventLog
from greenroom.schemas.events.events import (
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
from greenroom.schemas.events.result_events import (
    ApprovalWanted,
    ServerCall,
    ToolEvent,
    ToolResult,
    ToolsListed,
)
from greenroom.schemas.problems import Problem, ProblemError, conversation_in_use
from greenroom.schemas.protocols.responses_protocol import (
    Heartbeat,
    Lock,
    RunEnded,
    RunEvent,
    RunOutcome,
    RunStarted,
    StartRun,
)
from greenroom.schemas.stored import UNFINISHED, ResponseStatus, StoredResponse

HEARTBEAT = 10.0  # Seconds without an entry after which readers get a heartbeat

NEWS_INTERVAL = 2.0
"""Seconds without an entry after which readers learn that their run waits for something else than before."""


class Run:
    """The state of a run and the decisions about it; `RunTask` does the waiting.

    Attributes:
        message: Message that has started it.
        log: Log of its events.
        status: Status of the response.
        row: Unfinished response as stored; None if it is not stored.
        readers: Number of open subscriptions.
        scope: Cancel scope around its task, except for storing.
    """

    def __init__(self, message: StartRun) -> None:
        self.message = message
        self.log = EventLog()
        self.status: ResponseStatus = "queued"
        self.row: StoredResponse | None = None
        self.readers = 0
        self.scope = trio.CancelScope()
        self._lock: Lock | None = message.lock.take() if message.lock is not None else None
        self._admitted = False
        self._prompt: Admitted | None = None
        self._finished: Finished | None = None
        self._problem: Problem | None = None
        self._last_entry = trio.current_time()
        self._news: QueueStatus | PromptProgress | None = None
        self._told: object = None
        self._on_end: list[Callable[[RunEnded | Failed], None]] = []

    @property
    def accepted(self) -> bool:
        """True if the model is known to have accepted the request."""
        return self._admitted

    @property
    def answered(self) -> bool:
        """True if the model will send no more events."""
        return self._finished is not None or self._problem is not None

    @property
    def refusal(self) -> Problem | None:
        """Reason not to store the run, if it failed or was cancelled before it started, or in the background
        before a client knew of it; None otherwise.
        """
        hidden = self.message.background and self._finished is None
        if self.row is not None or (self.status != "queued" and not hidden):
            return None
        if self._problem is not None or (self._admitted and not hidden):
            return self._problem
        return Problem(409, "response_cancelled", "The response was cancelled before it had begun.")

    def take(self, event: InferenceEvent) -> None:
        match event:
            case (
                TextDelta()
                | ReasoningDelta()
                | ToolCallDelta()
                | ToolsListed()
                | ServerCall()
                | ApprovalWanted()
                | ToolResult()
            ):
                self._start()
                self._news = None
                self._append(event)
            case PromptProgress():
                self._start()
                self._news = event
            case Finished():
                self._start()
                self._finished = event
            case Failed(problem):
                self.fail(problem)
            case Admitted():
                self._admitted, self._prompt = True, event
                self._append(event)
            case QueueStatus():
                self._news = event

    def fail(self, problem: Problem) -> None:
        if not self.answered:
            self._problem = problem

    def cancel(self) -> None:
        """Stop the generation; the text so far is stored."""
        self.scope.cancel("the response is cancelled")

    def give_up(self) -> None:
        """Record that the client of a background run has left; what is not stored by then ends."""
        if self.row is None:
            self.cancel()

    def leave(self) -> None:
        """Record a closed subscription; the last one ends a run that is not in the background."""
        self.readers -= 1
        if not self.readers and not self.message.background:
            self.cancel()

    def show_life(self) -> None:
        """Append a heartbeat after a long silence, but not while the response is being stored.

        A run that begins to wait for another reason than before gets one sooner, also if it is in the
        background and its readers do not know its id yet.
        """
        silent, reason = trio.current_time() - self._last_entry, _reason(self._news)
        is_known = self._admitted or self.row is not None
        due = HEARTBEAT if reason == self._told or not is_known else NEWS_INTERVAL
        if silent >= due and not self.answered and not self.scope.cancel_called:
            self._told = reason
            self._append(Heartbeat(self._news))

    def snapshot(self) -> StoredResponse:
        """Return the unfinished response, without its text."""
        status = self.status if self.status in UNFINISHED else "in_progress"
        events = () if self._prompt is None else (self._prompt,)
        return self.message.write(RunOutcome(status, self.log.model, events))

    def decide(self) -> RunOutcome:
        """Set the final status and return the outcome."""
        self.status = check_step(self.status, decide_end(self._finished, self._problem))
        return self._outcome(self._problem)

    def fail_storing(self, problem: Problem) -> RunOutcome:
        """Set the status to failed because storing failed, and return the outcome."""
        if self.status != "failed":
            self.status = check_step(self.status, "failed")
        return self._outcome(problem)

    def when_ended(self, call: Callable[[RunEnded | Failed], None]) -> None:
        """Call back once when the run has ended and been stored; at once if it has."""
        if self.log.last is None:
            self._on_end.append(call)
        else:
            call(self.log.last)

    def end(self, event: RunEnded | Failed) -> None:
        """Append the last entry, release the conversation, and call the registered callbacks."""
        self.release()
        self.log.end(event)
        for call in self._on_end:
            call(event)
        self._on_end.clear()

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()

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
            if isinstance(event, Admitted | TextDelta | ReasoningDelta | ToolCallDelta | ToolEvent)
        ]
        if self._finished is not None:
            events.append(self._finished)
        return RunOutcome(self.status, self.log.model, events, problem, time.time())


def _reason(news: QueueStatus | PromptProgress | None) -> object:
    """Return the reason why a run waits, without figures such as bytes, times and places in the queue."""
    if isinstance(news, QueueStatus):
        return news.status, news.loading, news.unloading
    return None if news is None else PromptProgress


_ENDS: frozenset[ResponseStatus] = frozenset({"completed", "incomplete", "failed", "cancelled"})

TRANSITIONS: dict[ResponseStatus, frozenset[ResponseStatus]] = {
    "queued": frozenset({"in_progress", "failed", "cancelled"}),
    "in_progress": _ENDS,
    "completed": frozenset({"failed"}),
    "incomplete": frozenset({"failed"}),
    "failed": frozenset(),
    "cancelled": frozenset({"failed"}),
}
"""The states that may follow each state; an ended run still fails if it cannot be stored."""


class ImpossibleTransition(Exception):
    """An error for a transition that the table does not allow."""


def check_step(before: ResponseStatus, after: ResponseStatus) -> ResponseStatus:
    """Return the next state if the transition is allowed. Raises ImpossibleTransition: the table has no such
    transition.
    """
    if after not in TRANSITIONS[before]:
        raise ImpossibleTransition(f"{before} to {after}")
    return after


def decide_end(finished: Finished | None, problem: Problem | None) -> ResponseStatus:
    """Return the final status of a run; an answer that was complete before a cancellation stays complete.

    Args:
        finished: Last event of the answer; None if it was not received.
        problem: Problem of a failed run; None otherwise.
    """
    if problem is not None:
        return "failed"
    if finished is None or finished.reason == "cancelled":
        return "cancelled"
    return "incomplete" if finished.reason == "length" else "completed"


MAX_BACKGROUND_RUNS = 64
"""Maximum number of background runs at once, including waiting ones. Each keeps its events in memory; the
number of other runs is limited by the connections. Each client has its share of them."""


class Runs:
    """All runs that have not ended, by id and owner."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], Run] = {}
        self._busy: set[tuple[str, str]] = set()
        self._background = Pot(MAX_BACKGROUND_RUNS)

    def __iter__(self) -> Iterator[Run]:
        return iter([*self._by_id.values()])

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, run: Run) -> None:
        """Add a run until it has ended. Raises ProblemError: 503 if its client has too many background runs;
        400 if the id is in use.
        """
        message = run.message
        client = message.request.client
        if message.background and self._background.room(client) <= 0:
            raise ProblemError(_too_many_runs(self._background.held(client)))
        if (message.owner, message.id) in self._by_id:
            raise ProblemError(
                Problem(400, "invalid_value", f"The response '{message.id}' exists already.", "id")
            )
        self._by_id[message.owner, message.id] = run
        if message.background:
            self._background.take(client)

    def find(self, owner: str, response: str) -> Run | None:
        return self._by_id.get((owner, response))

    def remove(self, run: Run) -> None:
        message = run.message
        if self._by_id.pop((message.owner, message.id), None) is not None and message.background:
            self._background.give_back(message.request.client)

    def lock(self, owner: str, conversation: str) -> ConversationLock:
        """Lock a conversation for one turn. Raises ProblemError (409) while another turn holds the lock."""
        if (owner, conversation) in self._busy:
            raise ProblemError(conversation_in_use(conversation))
        self._busy.add((owner, conversation))
        return ConversationLock(conversation, lambda name: self._busy.discard((owner, name)))


def _too_many_runs(own: int) -> Problem:
    detail = (
        f"{own} responses of yours are already being generated in the background; "
        f"all clients together may have {MAX_BACKGROUND_RUNS}, and one alone not all of them."
    )
    return Problem(503, "too_many_background_responses", detail, "background", retry_after=5)
