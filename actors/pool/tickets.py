"""The queue of requests that wait for a model, in order of arrival and priority."""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.events.events import QueueStatus
from greenroom.schemas.messages.priority import turn_of
from greenroom.schemas.problems import Problem


@attrs.define(eq=False)
class Ticket:
    """A waiting request.

    Args:
        slots: Number of slots that it needs.
        priority: Priority: each step above 0 puts it further behind other requests.
        timeout: Longest wait in seconds, loads not counted; None for no limit.
        since: Time of its arrival, by `time.monotonic()`.
        status: Last status sent to its client; None before the first.
        waited: Seconds that count for the limit, up to the time `counted`.
    """

    reply: Reply
    request_id: str
    slots: int = 1
    priority: int = 0
    timeout: float | None = None
    since: float = attrs.field(factory=time.monotonic)
    status: QueueStatus | None = None
    waited: float = attrs.field(default=0.0, init=False)
    counted: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.counted = self.since

    @property
    def turn(self) -> float:
        """Time by which the queue is sorted: its arrival, put off by its priority."""
        return turn_of(self.since, self.priority)

    def has_waited_too_long(self, now: float, *, loading: bool) -> bool:
        """Count the time since the last call, unless the model loads; return whether the limit is reached."""
        if not loading:
            self.waited += now - self.counted
        self.counted = now
        return self.timeout is not None and self.waited >= self.timeout

    def fail(self, problem: Problem, log: Any) -> None:
        """Fail the request and log that."""
        self.reply.fail(problem)
        detail = {"detail": problem.detail} if problem.status >= 500 else {}
        log.warning("request failed", problem=problem.code, **detail, **self._fields())

    def log_cancelled(self, log: Any) -> None:
        """Log that the client left before the request was served."""
        log.info("request finished", reason="cancelled", **self._fields())

    def _fields(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.since, 4)
        ids = {"request_id": self.request_id, "generated_tokens": 0}
        return {**ids, "queued_seconds": seconds, "seconds": seconds}


class TicketQueue:
    """A queue in order of arrival and priority; requests whose reply has no receiver are skipped.

    The first request waits until enough slots are free, and no other overtakes it; otherwise many small
    requests would starve a large one.
    """

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Add a ticket behind all whose turn is not later."""
        insort(self._tickets, ticket, key=lambda waiting: waiting.turn)

    def remove(self, ticket: Ticket) -> bool:
        """Remove a ticket; return whether it still waited."""
        waited = ticket in self._tickets
        if waited:
            self._tickets.remove(ticket)
        return waited

    @property
    def first_turn(self) -> float | None:
        """Turn of the first request; None if none waits."""
        return self._tickets[0].turn if self._tickets else None

    def next(self, free_slots: int) -> Ticket | None:
        """Remove and return the first ticket with a receiver, if the free slots suffice for it."""
        for ticket in self._tickets:
            if not ticket.reply.closed:
                if ticket.slots > free_slots:
                    return None
                self._tickets.remove(ticket)
                return ticket
        return None

    def length_beyond(self, free_slots: int, slots: int, priority: int = 0) -> int:
        """Return the number of requests beyond the free slots if one of `slots` slots is added.

        Requests that have lowered their priority do not count for one that has not.
        """
        counted = (ticket.slots for ticket in self._tickets if priority > 0 or ticket.priority <= 0)
        sizes = [*counted, slots]
        served = sum(taken <= free_slots for taken in accumulate(sizes))
        return len(sizes) - served

    def clear(self) -> list[Ticket]:
        """Remove and return all tickets."""
        tickets, self._tickets = self._tickets, []
        return tickets
