"""Requests that wait for one model, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from greenroom.actors.core.reply import Reply
from greenroom.schemas.events import QueueStatus


@attrs.define(eq=False)
class Ticket:
    """One waiting request.

    Args:
        told: The last status that its owner was told.
    """

    reply: Reply
    request_id: str
    told: QueueStatus | None = None


class TicketQueue:
    """First come, first served; a waiter has left when its reply has no receiver."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Wait behind all others."""
        self._tickets.append(ticket)

    def remove(self, ticket: Ticket) -> bool:
        """Leave; whether the ticket still waited."""
        waited = ticket in self._tickets
        if waited:
            self._tickets.remove(ticket)
        return waited

    def next(self) -> Ticket | None:
        """The first whose owner is still there; those before it are dropped."""
        while self._tickets:
            ticket = self._tickets.pop(0)
            if not ticket.reply.closed:
                return ticket
        return None

    def clear(self) -> list[Ticket]:
        """Take everybody out."""
        tickets, self._tickets = self._tickets, []
        return tickets
