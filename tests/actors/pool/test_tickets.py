"""Tickets: requests that wait for one model."""

from __future__ import annotations

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.tickets import Ticket, TicketQueue
from greenroom.schemas.messages.priority import AGEING, MAX_PRIORITY, PROBE


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


def at(since: float, priority: int = 0, timeout: float | None = None) -> Ticket:
    return Ticket(ticket()[0].reply, "r", since=since, priority=priority, timeout=timeout)


def test_requests_of_low_priority_do_not_count_for_others() -> None:
    queue = TicketQueue()
    for priority in (1, 1, 2, 0):
        queue.add(at(0.0, priority))
    assert [queue.length_beyond(1, 1, priority) for priority in (0, 1, 5)] == [1, 4, 4]


def test_each_step_of_priority_lets_newer_requests_pass_for_a_limited_time() -> None:
    queue = TicketQueue()
    low, lowest = at(0.0, 1), at(0.0, MAX_PRIORITY)
    newer, much_newer, late = at(AGEING - 1.0), at(AGEING + 1.0), at(PROBE * AGEING + 1.0)
    for each in (low, lowest, late, much_newer, newer):
        queue.add(each)
    assert queue.first_turn == AGEING - 1.0
    assert list(queue) == [newer, low, much_newer, lowest, late]


def test_only_time_without_a_load_counts_for_the_limit_of_a_wait() -> None:
    waiting = at(100.0, timeout=3.0)
    assert not waiting.has_waited_too_long(102.0, loading=False)
    assert not waiting.has_waited_too_long(200.0, loading=True)
    assert not waiting.has_waited_too_long(200.5, loading=False)
    assert waiting.has_waited_too_long(201.0, loading=False)
    assert not at(0.0).has_waited_too_long(1e9, loading=False)
