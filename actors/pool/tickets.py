"""The queue of requests that wait for a model, in order of arrival."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.events.events import QueueStatus
from greenroom.schemas.problems import Problem


@attrs.define(eq=False)
class Ticket:
    """A waiting request.

    Args:
        slots: Number of slots that it needs.
        status: Last status sent to its client; None before the first.
        since: Time of its arrival, by `time.monotonic()`.
    """

    reply: Reply
    request_id: str
    slots: int = 1
    status: QueueStatus | None = None
    since: float = attrs.field(factory=time.monotonic)

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
    """A first-come, first-served queue; requests whose reply has no receiver are skipped.

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
        """Append a ticket."""
        self._tickets.append(ticket)

    def remove(self, ticket: Ticket) -> bool:
        """Remove a ticket; return whether it still waited."""
        waited = ticket in self._tickets
        if waited:
            self._tickets.remove(ticket)
        return waited

    def next(self, free_slots: int) -> Ticket | None:
        """Remove and return the first ticket with a receiver, if the free slots suffice for it."""
        for ticket in self._tickets:
            if not ticket.reply.closed:
                if ticket.slots > free_slots:
                    return None
                self._tickets.remove(ticket)
                return ticket
        return None

    def length_beyond(self, free_slots: int, slots: int) -> int:
        """Return the number of requests beyond the free slots if one of `slots` slots is added."""
        sizes = [*(ticket.slots for ticket in self._tickets), slots]
        served = sum(taken <= free_slots for taken in accumulate(sizes))
        return len(sizes) - served

    def clear(self) -> list[Ticket]:
        """Remove and return all tickets."""
        tickets, self._tickets = self._tickets, []
        return tickets
