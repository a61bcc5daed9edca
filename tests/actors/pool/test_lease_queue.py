"""Tickets: requests that wait for one model."""

from __future__ import annotations

import pytest

from greenroom.actors.core.reply import ReplyStream
from greenroom.actors.pool.lease_queue import Ticket, TicketQueue
from greenroom.engine.resources.fair_queue import Holdings
from greenroom.schemas.messages.requests import AGEING, MAX_PRIORITY, PROBE


def ticket(slots: int = 1, client: str = "", since: float = 0.0) -> tuple[Ticket, ReplyStream[object]]:
    replies: ReplyStream[object] = ReplyStream()
    return Ticket(replies.sender, "r", slots, since=since, client=client), replies


def take(queue: TicketQueue, free: int, *held: tuple[str, int], slots: int = 8) -> Ticket | None:
    return queue.next(Holdings(held), free, slots, now=1e9)


async def test_tickets_are_served_in_order_and_those_who_left_are_passed_over() -> None:
    queue = TicketQueue()
    (first, gone), (second, _), (third, _) = ticket(), ticket(), ticket()
    for each in (first, second, third):
        queue.add(each)
    gone.close()
    assert take(queue, 1) is second
    assert queue.remove(third)
    assert not queue.remove(third)
    assert take(queue, 1) is None


def test_the_answers_of_a_large_request_begin_with_the_first_free_slot() -> None:
    queue = TicketQueue()
    (large, _), (small, _) = ticket(3), ticket()
    queue.add(large)
    queue.add(small)
    assert take(queue, 0, ("", 8)) is None
    assert take(queue, 1, ("", 7)) is large
    assert take(queue, 1, ("", 7)) is small


@pytest.mark.parametrize(
    ("waiting", "held", "served"),
    [
        (["many", "many", "new"], {"many": 7}, ["new", "many", "many"]),
        (["a", "a", "a", "b", "c"], {}, ["a", "b", "c", "a", "a"]),
        (["a", "b", "b"], {"a": 1, "b": 2}, ["a", "b", "b"]),
        # Keys that nobody has checked share their address.
        (["x#1", "x#2", "x#3", "y"], {}, ["x#1", "y", "x#2", "x#3"]),
        (["x#1", "x#1", "x#2", "y"], {"y": 2}, ["x#1", "x#2", "x#1", "y"]),
    ],
)
def test_whoever_holds_least_is_next(waiting: list[str], held: dict[str, int], served: list[str]) -> None:
    queue = TicketQueue()
    for number, client in enumerate(waiting):
        queue.add(ticket(client=client, since=float(number))[0])
    told = [each.client for each in queue.in_turn(Holdings(held.items()), now=1e9)]
    taken = []
    now_held = dict(held)
    while (each := queue.next(Holdings(now_held.items()), 1, 8, now=1e9)) is not None:
        taken.append(each.client)
        now_held[each.client] = now_held.get(each.client, 0) + 1
    assert told == taken == served


@pytest.mark.parametrize(
    ("held", "client", "begins"),
    [
        ({"a": 8}, "b", True),
        ({"a": 8, "b": 3}, "b", True),
        ({"a": 8, "b": 4}, "b", False),  # half is the share of each of two
        ({"a": 8, "b": 4}, "c", True),
        ({"a": 8, "b": 4, "c": 2}, "c", False),
        ({"a": 7, "b": 1}, "b", True),
        ({"x#1": 8}, "x#2", True),
        ({"x#1": 4, "x#2": 4, "y": 4}, "x#3", True),
        ({"x#1": 1, "x#2": 3, "y": 4}, "x#2", False),  # the address has its half already
        ({"x#1": 4, "x#2": 4, "y": 1}, "y", True),
    ],
)
def test_without_a_free_slot_a_client_begins_that_holds_less_than_its_share(
    held: dict[str, int], client: str, begins: bool
) -> None:
    queue = TicketQueue()
    queue.add(ticket(client=client)[0])
    assert (take(queue, 0, *held.items()) is not None) is begins


def test_who_has_lowered_the_priority_interrupts_nobody_before_the_turn() -> None:
    queue = TicketQueue()
    queue.add(low := at(0.0, 1))
    held = Holdings([("other", 8)])
    assert queue.next(held, 0, 8, now=AGEING - 1) is None
    assert queue.next(held, 0, 8, now=AGEING + 1) is low


@pytest.mark.parametrize(("arrival", "first"), [(10.0, "raised"), (AGEING + 1, "poor")])
def test_raised_priority_goes_before_who_holds_less_until_that_one_has_waited(
    arrival: float, first: str
) -> None:
    queue = TicketQueue()
    raised, poor = at(arrival, -1), ticket(client="poor", since=0.0)[0]
    raised.client = "raised"
    for each in (raised, poor):
        queue.add(each)
    assert queue.in_turn(Holdings([("raised", 3)]), now=1e9)[0].client == first


async def test_those_who_will_wait_are_counted_by_the_slots_that_they_take() -> None:
    queue = TicketQueue()
    assert queue.length_beyond(0) == 1
    assert queue.length_beyond(1) == 0
    queue.add(ticket(3)[0])
    assert [queue.length_beyond(free) for free in (4, 3, 1, 0)] == [0, 1, 1, 2]


def at(since: float, priority: int = 0, timeout: float | None = None) -> Ticket:
    return Ticket(ticket()[0].reply, "r", since=since, priority=priority, timeout=timeout)


def test_requests_of_low_priority_do_not_count_for_others() -> None:
    queue = TicketQueue()
    for priority in (1, 1, 2, 0):
        queue.add(at(0.0, priority))
    assert [queue.length_beyond(1, priority) for priority in (0, 1, 5)] == [1, 4, 4]


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
