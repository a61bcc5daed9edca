"""Tickets: requests that wait for one model."""

from __future__ import annotations

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.tickets import Ticket, TicketQueue


def ticket(slots: int = 1) -> tuple[Ticket, ReplyStream[object]]:
    replies: ReplyStream[object] = ReplyStream()
    return Ticket(replies.sender, "r", slots), replies


async def test_tickets_are_served_in_order_and_those_who_left_are_passed_over() -> None:
    queue = TicketQueue()
    (first, gone), (second, _), (third, _) = ticket(), ticket(), ticket()
    for each in (first, second, third):
        queue.add(each)
    gone.close()
    assert queue.next(1) is second
    assert queue.remove(third)
    assert not queue.remove(third)
    assert queue.next(1) is None


async def test_a_large_request_waits_for_its_slots_and_is_not_overtaken() -> None:
    queue = TicketQueue()
    (large, _), (small, _) = ticket(3), ticket()
    queue.add(large)
    queue.add(small)
    assert queue.next(2) is None
    assert queue.next(3) is large
    assert queue.next(0) is None
    assert queue.next(1) is small


async def test_those_who_will_wait_are_counted_by_the_slots_that_they_take() -> None:
    queue = TicketQueue()
    assert queue.length_beyond(4, 4) == 0
    assert queue.length_beyond(4, 5) == 1
    queue.add(ticket(3)[0])
    assert queue.length_beyond(4, 1) == 0
    assert queue.length_beyond(4, 2) == 1
    queue.add(ticket(2)[0])
    assert queue.length_beyond(4, 1) == 2
