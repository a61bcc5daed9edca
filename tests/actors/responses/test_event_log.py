"""Event logs: all readers read the same events, at any time."""

from __future__ import annotations

import json
import random
import string

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.responses.event_log import EventLog, Subscription, decode_events, encode_events
from greenroom.schemas.events.events import (
    Admitted,
    Failed,
    PromptProgress,
    QueueStatus,
    ReasoningDelta,
    TextDelta,
    Token,
    TokenLogprob,
    ToolCallDelta,
)
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


tokens = st.builds(Token, st.text(), st.binary(max_size=8))
numbers = st.floats(-1e4, 0)
logprobs = st.builds(
    TokenLogprob, tokens, numbers, st.lists(st.tuples(tokens, numbers), max_size=3).map(tuple)
)
names = st.lists(st.text(), max_size=2).map(tuple)
nbytes = st.none() | st.integers(0)
statuses = st.builds(
    QueueStatus, st.just("loading"), st.integers(0), st.text(), nbytes, names, names, nbytes, nbytes, nbytes
)
events = st.one_of(
    st.builds(TextDelta, st.text(), logprobs=st.lists(logprobs, max_size=3).map(tuple)),
    st.builds(ReasoningDelta, st.text()),
    st.builds(ToolCallDelta, st.integers(0, 9), st.text(), st.text(), st.text()),
    st.builds(ToolCallDelta, st.integers(0, 9), arguments=st.text(string.printable)),
    st.builds(Admitted, st.integers(0), st.integers(0)),
    st.just(RunStarted()),
    st.just(Heartbeat()),
    st.builds(Heartbeat, statuses),
    st.builds(Heartbeat, st.builds(PromptProgress, *[st.integers(0)] * 3, st.floats(0, 1e6))),
)


@given(st.lists(events, max_size=20))
def test_what_was_encoded_is_decoded(log: list[RunEvent]) -> None:
    assert decode_events(encode_events(log)) == log


def test_what_stands_in_the_response_is_left_out_and_many_are_one_array() -> None:
    log: list[RunEvent] = [TextDelta(str(number)) for number in range(1_234)]
    text = encode_events([*log, Failed(internal_error())])
    assert len(json.loads(text)) == 1_234
    assert decode_events(text) == log
    assert len(text) < 16 * 1_234


def test_half_a_character_is_kept_as_it_is() -> None:
    log: list[RunEvent] = [TextDelta("\ud83d"), TextDelta("\ude00")]
    text = encode_events(log)
    assert text.encode("utf-8"), "as SQLite wants it"
    assert decode_events(text) == log
