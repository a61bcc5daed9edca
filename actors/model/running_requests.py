"""The requests that a model generates for, and what is logged of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.actors.model.model_loop import Command, Submit
from greenroom.schemas.events import Failed, Finished, FinishReason, InferenceEvent, Timing, Usage
from greenroom.schemas.model_protocol import Generate
from greenroom.schemas.prepared_input import PreparedInput
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import InferenceRequest


@attrs.define(eq=False)
class RunningRequest:
    """One request from its submission to its engine's last event, which may come after its owner has left.

    Args:
        request: With an id that is unique among those running.
        request_id: The id that its client knows.
        prompt_tokens: Length of its prompt.
        choices_left: Choices whose last event has not come.
        queued: Seconds that it waited before it came here.
        started: When it was submitted, by `time.monotonic()`.
        kept: What tells the model's next engine to begin it, or to go on with it, if it is in none.
        cancelled: Its engine has been told to end it.
        problem: Why it failed, if it did.
        reason: Why its last choice ended.
        usage: What the choices used that have ended; None if none has.
        timing: Of the choice that ended last.
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

    def record_end(self, event: Finished | Failed) -> bool:
        """Keep what the end of a choice, or of the whole request, tells; return whether it was the last."""
        if event.usage is not None:
            self.usage = event.usage if self.usage is None else self.usage.plus(event.usage)
        self.timing = event.timing or self.timing
        if isinstance(event, Failed):
            self.problem = self.problem or event.problem
            return True
        self.reason = event.reason
        self.choices_left -= 1
        return self.choices_left == 0

    def release(self) -> Command | None:
        """Return what is to be told to an engine that is there at last, if this is in none."""
        kept, self.kept = self.kept, None
        if isinstance(kept, Submit):
            self.queued += time.monotonic() - self.started
        return kept

    def fail(self, problem: Problem) -> None:
        """Tell the owner that nothing more comes, and why."""
        self.problem = self.problem or problem
        self.reply.fail(problem)

    def log_end(self, log: Any) -> None:
        """Write one line, however the request ended, with all that is known of it."""
        fields: dict[str, Any] = {"request_id": self.request_id, "prompt_tokens": self.prompt_tokens}
        if self.usage is not None:
            fields |= self.usage.amounts()
        timing = self.timing or Timing(queued=self.queued)
        if generated := fields.get("generated_tokens"):
            fields["tokens_per_second"] = round(generated / timing.decode, 1) if timing.decode else 0
        fields |= {f"{name}_seconds": round(spent, 4) for name, spent in attrs.asdict(timing).items()}
        fields["seconds"] = round(time.monotonic() - self.started, 4)
        if self.problem is not None:
            # A client's own mistake is told to the client alone.
            detail = {"detail": self.problem.detail} if self.problem.status >= 500 else {}
            log.warning("request failed", problem=self.problem.code, **detail, **fields)
        else:
            log.info("request finished", reason=self.reason, **fields)


class RunningRequests:
    """All requests of one model by the id under which its engine knows them."""

    def __init__(self) -> None:
        self._by_id: dict[str, RunningRequest] = {}
        self._repeated = 0

    def add(self, message: Generate, prepared: PreparedInput, reply: Reply) -> RunningRequest:
        """Keep a request until its last event; ids that clients repeat are told apart."""
        request_id = engine_id = message.request.id
        while engine_id in self._by_id:
            self._repeated += 1
            engine_id = f"{request_id}#{self._repeated}"
        request = attrs.evolve(message.request, id=engine_id)
        running = RunningRequest(
            request, request_id, reply, prepared.prompt_tokens, prepared.choices, message.queued
        )
        self._by_id[request.id] = running
        return running

    def deliver(self, events: Iterable[tuple[str, InferenceEvent]]) -> list[RunningRequest]:
        """Send a step's events to those who asked; return the requests that ended by them."""
        ended: list[RunningRequest] = []
        for engine_id, event in events:
            running = self._by_id.get(engine_id)
            if running is None:
                continue
            if not isinstance(event, (Finished, Failed)):
                running.reply.send(event)
                continue
            if event.timing is not None:
                timing = attrs.evolve(event.timing, queued=event.timing.queued + running.queued)
                event = attrs.evolve(event, timing=timing)
            running.reply.send(event)
            if running.record_end(event):
                del self._by_id[engine_id]
                running.reply.end()
                ended.append(running)
        return ended

    def cancel(self, running: RunningRequest) -> bool:
        """Mark a request as cancelled; return whether its engine has to be told."""
        if running.cancelled or self._by_id.get(running.request.id) is not running:
            return False
        running.cancelled = True
        return True

    def remove(self, running: RunningRequest) -> None:
        """Remove one of which no event will come."""
        self._by_id.pop(running.request.id, None)

    def get(self, engine_id: str) -> RunningRequest | None:
        """Return the one that its engine knows under that id, if its last event has not come."""
        return self._by_id.get(engine_id)

    def put_first(self, engine_ids: Iterable[str]) -> None:
        """Have these stand before all others, in this order."""
        first = {name: self._by_id[name] for name in engine_ids if name in self._by_id}
        self._by_id = {**first, **self._by_id}

    def all(self) -> list[RunningRequest]:
        """Return those whose last event has not come."""
        return list(self._by_id.values())
