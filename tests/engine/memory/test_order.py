"""Who gets memory next: those who were stopped, by age, before those who are new."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from greenroom.engine.sampling.sampling_parameters import SamplingParameters
from greenroom.engine.scheduler.waiting_queue import QueueEntry, WaitingQueue
from greenroom.engine.sequences.sequence import Sequence
from greenroom.schemas.generation import GenerationParameters

MOVES = st.lists(
    st.tuples(st.sampled_from(["new", "stop", "admit", "leave"]), st.integers(0, 9)), max_size=80
)
IDLE = SamplingParameters.of(GenerationParameters(), frozenset(), 0)


def seat(serial: int, client: str) -> QueueEntry:
    text = cast(Any, None)  # nothing of it is decoded
    row = Sequence(str(serial), [1] * (1 + serial % 7), 5, frozenset(), IDLE, text, text, serial=serial)
    return QueueEntry(row, client=client, conversation=str(serial), tokens=10)


@given(MOVES)
def test_stopped_rows_go_first_by_age_and_nobody_is_lost(moves: list[tuple[str, int]]) -> None:
    room, waiting = WaitingQueue(), dict[int, QueueEntry]()
    running = {serial: seat(serial, "client 0") for serial in range(6)}
    for serial, (move, number) in enumerate(moves, len(running)):
        if move == "new":
            waiting[serial] = seat(serial, f"client {number % 3}")
            room.add(waiting[serial])
        elif move == "stop" and running:
            youngest = max(running)
            waiting[youngest] = running.pop(youngest)
            waiting[youngest].sequence.preempt()
            room.add(waiting[youngest])
        elif move == "leave" and waiting:
            room.remove(waiting.pop(sorted(waiting)[number % len(waiting)]).sequence)
        elif move == "admit":
            first = room.peek(fair=number % 2 == 0)
            stopped = [one for one, other in waiting.items() if other.sequence.preempted]
            if stopped:
                assert first is waiting[min(stopped)]
            elif number % 2 == 0:
                assert (first is None) == (not waiting)
            else:
                assert first is (waiting[min(waiting)] if waiting else None)
            if first is not None:
                assert room.peek(fair=number % 2 == 0) is first
                room.pop(first)
                running[first.sequence.serial] = waiting.pop(first.sequence.serial)
        assert {one.sequence.serial for one in room} == set(waiting)
        assert len(room) == len(waiting)
