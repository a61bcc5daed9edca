"""The requests that a model generates for, and what is logged of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.events import Failed, Finished, InferenceEvent, Usage
from greenroom.schemas.model_protocol import Generate
from greenroom.schemas.problems import Problem
from greenroom.schemas.requests import InferenceRequest


@attrs.define(eq=False)
class Running:
    """One request under way.

    Args:
        request: With an id that is unique among those running.
        request_id: The id that its client knows.
        queued: Seconds that it waited before it came here.
    """

    request: InferenceRequest
    request_id: str
    reply: Reply
    queued: float
    began: float = attrs.field(factory=time.monotonic)
    choices_left: int = attrs.field(init=False)
    end: Finished | Failed | None = None

    @choices_left.default
    def _all_choices(self) -> int:
        return self.request.choices

    def finish(self, event: Finished | Failed) -> bool:
        """Take the end of a choice, or of the request; whether it was the last one."""
        before = self.end
        if isinstance(event, Finished) and isinstance(before, Finished):
            event = attrs.evolve(event, usage=_together(before.usage, event.usage))
        self.end = event
        self.choices_left -= 1
        return self.choices_left == 0 or isinstance(event, Failed)

    def fail(self, problem: Problem, log: Any) -> None:
        """Tell the owner, and the log."""
        self.end = Failed(problem)
        self.reply.fail(problem)
        self.log_end(log)

    def log_end(self, log: Any) -> None:
        """One line per request, however it ended."""
        seconds = round(time.monotonic() - self.began, 4)
        match self.end:
            case Finished(reason=reason, usage=usage, timing=timing):
                log.info(
                    "request finished",
                    request_id=self.request_id,
                    reason=reason,
                    seconds=seconds,
                    **{f"{name}_tokens": count for name, count in attrs.asdict(usage).items()},
                    **{f"{name}_seconds": round(spent, 4) for name, spent in attrs.asdict(timing).items()},
                )
            case Failed(problem):
                log.warning(
                    "request failed", request_id=self.request_id, problem=problem.code, seconds=seconds
                )
            case None:
                log.info("request finished", request_id=self.request_id, reason="cancelled", seconds=seconds)


def _together(one: Usage, other: Usage) -> Usage:
    """What two choices of a request used: they share its prompt."""
    return attrs.evolve(
        one,
        generated=one.generated + other.generated,
        reasoning=one.reasoning + other.reasoning,
        drafted=one.drafted + other.drafted,
        accepted=one.accepted + other.accepted,
    )


class RunningRequests:
    """All requests of one model by the id under which its engine knows them."""

    def __init__(self) -> None:
        self._by_id: dict[str, Running] = {}
        self._repeated = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, message: Generate, reply: Reply) -> Running:
        """Count a request as running; ids that clients repeat are told apart."""
        request, request_id = message.request, message.request.id
        if request_id in self._by_id:
            self._repeated += 1
            request = attrs.evolve(request, id=f"{request_id}#{self._repeated}")
        running = Running(request, request_id, reply, message.queued)
        self._by_id[request.id] = running
        return running

    def deliver(self, events: Iterable[tuple[str, InferenceEvent]]) -> list[Running]:
        """Hand a step's events over; returns the requests that ended by them."""
        over: list[Running] = []
        for engine_id, event in events:
            running = self._by_id.get(engine_id)
            if running is None:
                continue
            if isinstance(event, Finished):
                timing = attrs.evolve(event.timing, queued=event.timing.queued + running.queued)
                event = attrs.evolve(event, timing=timing)
            running.reply.send(event)
            if isinstance(event, (Finished, Failed)) and running.finish(event):
                del self._by_id[engine_id]
                running.reply.end()
                over.append(running)
        return over

    def remove(self, running: Running) -> bool:
        """Forget a request; whether it was still running."""
        if self._by_id.get(running.request.id) is not running:
            return False
        del self._by_id[running.request.id]
        return True

    def clear(self) -> list[Running]:
        """Forget all."""
        everyone = list(self._by_id.values())
        self._by_id.clear()
        return everyone
