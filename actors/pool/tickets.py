"""Requests that wait for one model, in the order in which they came."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.events import QueueStatus
from greenroom.schemas.problems import Problem


@attrs.define(eq=False)
class Ticket:
    """One waiting request.

    Args:
        slots: Those of the model that it will take.
        status: The last status that its owner was sent.
        since: When it began to wait, by `time.monotonic()`.
    """

    reply: Reply
    request_id: str
    slots: int = 1
    status: QueueStatus | None = None
    since: float = attrs.field(factory=time.monotonic)

    def fail(self, problem: Problem, log: Any) -> None:
        """Tell the owner, and the log, that the request gets no answer."""
        self.reply.fail(problem)
        detail = {"detail": problem.detail} if problem.status >= 500 else {}
        log.warning("request failed", problem=problem.code, **detail, **self._fields())

    def log_cancelled(self, log: Any) -> None:
        """Write that the owner left before its turn came."""
        log.info("request finished", reason="cancelled", **self._fields())

    def _fields(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.since, 4)
        ids = {"request_id": self.request_id, "generated_tokens": 0}
        return {**ids, "queued_seconds": seconds, "seconds": seconds}


class TicketQueue:
    """First come, first served; a waiter has left when its reply has no receiver.

    Whoever is first waits until there are slots enough for it, and nobody overtakes it: many small requests
    would keep a large one waiting for ever.
    """

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Append a ticket: it waits behind all others."""
        self._tickets.append(ticket)

    def remove(self, ticket: Ticket) -> bool:
        """Remove a ticket; return whether it still waited."""
        waited = ticket in self._tickets
        if waited:
            self._tickets.remove(ticket)
        return waited

    def next(self, free_slots: int) -> Ticket | None:
        """Remove and return the first whose owner is still there, if so many slots do for it."""
        for ticket in self._tickets:
            if not ticket.reply.closed:
                if ticket.slots > free_slots:
                    return None
                self._tickets.remove(ticket)
                return ticket
        return None

    def length_beyond(self, free_slots: int, slots: int) -> int:
        """Return how many will wait when so many free slots are taken, with one more that takes `slots`."""
        sizes = [*(ticket.slots for ticket in self._tickets), slots]
        served = sum(taken <= free_slots for taken in accumulate(sizes))
        return len(sizes) - served

    def clear(self) -> list[Ticket]:
        """Remove and return all."""
        tickets, self._tickets = self._tickets, []
        return tickets
