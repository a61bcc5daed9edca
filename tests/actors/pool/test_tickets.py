"""Requests that wait for one model."""

from __future__ import annotations

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.tickets import Ticket, TicketQueue


def ticket() -> tuple[Ticket, ReplyStream[object]]:
    replies: ReplyStream[object] = ReplyStream()
    return Ticket(replies.sender, "r"), replies


async def test_tickets_are_served_in_order_and_those_who_left_are_passed_over() -> None:
    queue = TicketQueue()
    (first, gone), (second, _), (third, _) = ticket(), ticket(), ticket()
    for each in (first, second, third):
        queue.add(each)
    gone.close()
    assert queue.next() is second
    assert queue.remove(third)
    assert not queue.remove(third)
    assert queue.next() is None
