"""Tests of the waiting queue's order: preempted sequences, least-served clients first, then new requests."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.resources.fair_queue import Holdings
from greenroom.engine.text.sampling_parameters import SamplingParameters
from greenroom.engine.text.scheduler.admission import QueueEntry, WaitingQueue, first_to_preempt
from greenroom.engine.text.sequence import Sequence
from greenroom.schemas.messages.generation import GenerationParameters

MOVES = st.lists(
    st.tuples(st.sampled_from(["new", "preempt", "admit", "remove"]), st.integers(0, 9)), max_size=80
)
IDLE = SamplingParameters.of(GenerationParameters(), frozenset(), 0)


def entry(serial: int, client: str, max_tokens: int = 5, tokens: int = 10) -> QueueEntry:
    text = cast(Any, None)  # nothing of it is decoded
    prompt = [1] * (1 + serial % 7)
    sequence = Sequence(str(serial), prompt, max_tokens, frozenset(), IDLE, text, serial=serial)
    return QueueEntry(sequence, client=client, conversation=str(serial), tokens=tokens)


@given(MOVES)
def test_preempted_sequences_come_first_unless_a_client_holds_less_and_none_is_lost(
    moves: list[tuple[str, int]],
) -> None:
    queue, waiting = WaitingQueue(), dict[int, QueueEntry]()
    running = {serial: entry(serial, f"client {serial % 2}") for serial in range(6)}
    for serial, (move, number) in enumerate(moves, len(running)):
        if move == "new":
            waiting[serial] = entry(serial, f"client {number % 3}")
            queue.add(waiting[serial])
        elif move == "preempt" and running:
            youngest = max(running)
            waiting[youngest] = running.pop(youngest)
            waiting[youngest].sequence.preempt()
            queue.add(waiting[youngest])
        elif move == "remove" and waiting:
            queue.remove(waiting.pop(sorted(waiting)[number % len(waiting)]).sequence)
        elif move == "admit":
            held = Holdings((one.client, 1) for one in running.values())
            scarce = held if number % 2 == 0 else None
            first = queue.peek(scarce)
            preempted = [one for one in sorted(waiting) if waiting[one].sequence.preempted]
            if first is None:
                assert not waiting
            elif scarce is None:
                assert first is waiting[min(preempted or waiting)]
            elif preempted:
                resumed = waiting[min(preempted, key=lambda one: (held.of(waiting[one].client), one))]
                fewer = [one for one in waiting.values() if held.of(one.client) < held.of(resumed.client)]
                assert first in fewer if fewer else first is resumed
            if first is not None:
                assert queue.peek(scarce) is first
                queue.pop(first)
                running[first.sequence.serial] = waiting.pop(first.sequence.serial)
        assert {one.sequence.serial for one in queue} == set(waiting)
        assert len(queue) == len(waiting)


def test_whose_last_request_was_large_competes_as_a_newcomer_after_an_idle_time() -> None:
    queue = WaitingQueue()
    large = entry(0, "before")
    large.tokens = 8_000
    queue.add(large)
    queue.add(entry(1, "other"))
    for _ in range(2):
        queue.pop(_first(queue))
    for at in range(10):
        queue.add(entry(2 + at, "before"))
        queue.add(entry(12 + at, "new"))
    turns = []
    for _ in range(10):
        turns.append(_first(queue).client)
        queue.pop(_first(queue))
    assert turns.count("before") == 5


def _first(queue: WaitingQueue) -> QueueEntry:
    first = queue.peek(Holdings([]))
    assert first is not None
    return first


def test_an_answer_that_resumes_may_have_all_that_is_reserved_before_it_is_preempted_again() -> None:
    entries = [entry(serial, "client", max_tokens=1_000, tokens=101 + serial) for serial in range(3)]
    stopped: Counter[int] = Counter()
    for _ in range(1_000):
        for one in entries:
            one.sequence.answer.append(7)
            one.sequence.sampled = one.sequence.generated = len(one.sequence.answer)
        while any(one.is_overdrawn for one in entries):
            first = first_to_preempt(entries)
            assert first.is_overdrawn
            first.preempt(100)
            stopped[first.sequence.serial] += 1
    assert stopped == {0: 9, 1: 9, 2: 9}
