"""Refs: received messages count, unreceived ones are withdrawn, and no caller waits for a stopped actor."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.actors.core.ref import ActorStopped, Control, Envelope, Inbox, Ref
from greenroom.schemas.events.events import Failed
from greenroom.schemas.problems import draining


class Counter:
    """A minimal actor that adds up numbers and answers with the sum."""

    def __init__(self) -> None:
        self.inbox: Inbox[int | str] = Inbox()
        self.ref: Ref[int | str] = self.inbox.ref
        self.control: Control[Any] = Control()
        self.total = 0

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.inbox.forward, self.control)
                while True:
                    envelope = await self.control.receive()
                    assert isinstance(envelope, Envelope)
                    if envelope.message == "stop":
                        break
                    if isinstance(envelope.message, int):
                        self.total += envelope.message
                    elif envelope.reply is not None:
                        envelope.reply.send(self.total)
                nursery.cancel_scope.cancel()
        finally:
            self.control.close(draining())


@pytest.fixture
async def counter(nursery: trio.Nursery) -> Counter:
    counter = Counter()
    nursery.start_soon(counter.run)
    return counter


async def test_messages_of_one_sender_keep_their_order(counter: Counter) -> None:
    for number in range(5):
        await counter.ref.tell(number)
    assert await counter.ref.ask("sum", int) == 10


async def test_a_stopped_actor_takes_no_messages(counter: Counter) -> None:
    await counter.ref.tell("stop")
    await wait_all_tasks_blocked()
    with pytest.raises(ActorStopped):
        await counter.ref.tell(1)
    with pytest.raises(ActorStopped):
        await counter.ref.ask("sum", int)


async def test_a_sender_that_is_cancelled_has_withdrawn_its_message(nursery: trio.Nursery) -> None:
    counter = Counter()
    with trio.move_on_after(0) as scope:
        await counter.ref.tell(5)
    assert scope.cancelled_caught
    nursery.start_soon(counter.run)
    await counter.ref.tell(1)
    assert await counter.ref.ask("sum", int) == 1


async def test_who_asked_an_actor_that_stops_is_told_even_if_its_message_is_in_flight() -> None:
    # Trio's scheduler decides whether the forwarder or the closing runs first. Both orders must work.
    for checkpoints in [0, 0, 0, 0, 0, 0, 1, 2]:
        counter = Counter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(counter.inbox.forward, counter.control)
            with await counter.ref.stream("sum") as replies, trio.fail_after(300):
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                counter.control.close(draining())
                assert [event async for event in replies] == [Failed(draining())]
            nursery.cancel_scope.cancel()


async def test_reports_never_wait_and_reach_an_actor_that_is_gone_without_harm() -> None:
    control: Control[int] = Control()
    for number in range(1000):
        control.send(number)
    assert [await control.receive() for _ in range(1000)] == list(range(1000))
    control.close(draining())
    control.send(1)


async def test_a_thread_reports_in_order_even_after_trio_has_ended() -> None:
    control: Control[int] = Control()

    def report() -> None:
        for number in range(100):
            control.send_from_thread(number)

    await trio.to_thread.run_sync(report)
    assert [await control.receive() for _ in range(100)] == list(range(100))


def test_a_thread_that_outlives_trio_reports_into_the_void() -> None:
    async def make() -> Control[int]:
        return Control()

    trio.run(make).send_from_thread(1)
