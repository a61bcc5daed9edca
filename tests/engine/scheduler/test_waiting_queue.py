"""Which request gets memory next: preempted sequences by age, then new ones."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.scheduler.waiting_queue import QueueEntry, WaitingQueue
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.generation import GenerationParameters

MOVES = st.lists(
    st.tuples(st.sampled_from(["new", "preempt", "admit", "remove"]), st.integers(0, 9)), max_size=80
)
IDLE = SamplingParameters.of(GenerationParameters(), frozenset(), 0)


def entry(serial: int, client: str) -> QueueEntry:
    text = cast(Any, None)  # nothing of it is decoded
    sequence = Sequence(str(serial), [1] * (1 + serial % 7), 5, frozenset(), IDLE, text, text, serial=serial)
    return QueueEntry(sequence, client=client, conversation=str(serial), tokens=10)


@given(MOVES)
def test_preempted_sequences_come_first_by_age_and_none_is_lost(moves: list[tuple[str, int]]) -> None:
    queue, waiting = WaitingQueue(), dict[int, QueueEntry]()
    running = {serial: entry(serial, "client 0") for serial in range(6)}
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
            first = queue.peek(fair=number % 2 == 0)
            preempted = [one for one, other in waiting.items() if other.sequence.preempted]
            if preempted:
                assert first is waiting[min(preempted)]
            elif number % 2 == 0:
                assert (first is None) == (not waiting)
            else:
                assert first is (waiting[min(waiting)] if waiting else None)
            if first is not None:
                assert queue.peek(fair=number % 2 == 0) is first
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
    first = queue.peek()
    assert first is not None
    return first
