"""Event logs: all readers read the same events, at any time."""

from __future__ import annotations

import random

import trio
import trio.testing

from greenroom.actors.responses.event_log import EventLog, Subscription
from greenroom.schemas.events.events import Failed, ReasoningDelta, TextDelta
from greenroom.schemas.problems import internal_error
from greenroom.schemas.protocols.responses_protocol import Heartbeat, RunEvent, RunStarted

END = Failed(internal_error())


def test_deltas_join_only_while_nobody_has_seen_the_first() -> None:
    log = EventLog()
    log.append(TextDelta("a"))
    log.append(TextDelta("b"))
    assert log.entries() == [TextDelta("ab")]
    log.append(TextDelta("c"))
    log.append(TextDelta("d"))
    log.append(ReasoningDelta("e"))
    assert log.entries() == [TextDelta("ab"), TextDelta("cd"), ReasoningDelta("e")]


def test_a_run_that_nobody_reads_costs_its_text() -> None:
    log = EventLog()
    for _ in range(10_000):
        log.append(TextDelta("word "))
    assert log.entries() == [TextDelta("word " * 10_000)]


async def test_all_readers_see_the_same_entries_however_they_read() -> None:
    chance = random.Random(5)
    for _ in range(50):
        log = EventLog()
        seen: list[list[RunEvent]] = []

        async def read(log: EventLog, seen: list[list[RunEvent]], patience: int) -> None:
            reader = Subscription(log)
            mine: list[RunEvent] = []
            seen.append(mine)
            try:
                while True:
                    mine += [await reader.receive(), *reader.receive_ready()]
                    for _ in range(patience):
                        await trio.lowlevel.checkpoint()
            except trio.EndOfChannel:
                return

        with trio.fail_after(300):
            async with trio.open_nursery() as nursery:
                for number in range(60):
                    kinds: list[RunEvent] = [TextDelta(f"{number} "), ReasoningDelta("so "), Heartbeat()]
                    log.append(chance.choice(kinds))
                    if chance.random() < 0.1:
                        nursery.start_soon(read, log, seen, chance.choice([0, 1, 7, 100]))
                    if chance.random() < 0.5:
                        await trio.lowlevel.checkpoint()
                log.end(END)
                nursery.start_soon(read, log, seen, 0)
        assert all(entries == seen[0] for entries in seen)
        assert len(seen[0]) == len(log.entries())
        assert seen[0][-1] == END


async def test_a_reader_may_be_cancelled_at_any_time_and_loses_nothing() -> None:
    log = EventLog()
    reader = Subscription(log)
    read: list[RunEvent] = []
    for event in (RunStarted(), TextDelta("a"), Heartbeat(), TextDelta("b")):
        with trio.CancelScope() as scope:
            scope.cancel()
            await reader.receive()
        assert scope.cancelled_caught
        log.append(event)
        read.append(await reader.receive())
    assert read == log.entries()


async def test_long_logs_are_handed_over_in_parts() -> None:
    log = EventLog([TextDelta(str(number)) for number in range(1_000)])
    log.end(END)
    reader = Subscription(log)
    parts = []
    while part := reader.receive_ready():
        parts.append(len(part))
    assert sum(parts) == 1_001
    assert max(parts) < 500


async def test_who_reads_nothing_waits_for_the_end() -> None:
    log = EventLog()
    ends = []

    async def wait() -> None:
        ends.append(await Subscription(log).wait_ended())

    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            log.append(TextDelta("a"))
            await trio.testing.wait_all_tasks_blocked()
            assert not ends
            log.end(END)
    assert ends == [END]
