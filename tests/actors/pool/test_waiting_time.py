"""Estimates of a request's waiting time."""

from __future__ import annotations

from greenroom.actors.pool.waiting_time import WaitingTime


def test_waiting_times_are_told_once_there_is_something_to_go_by() -> None:
    waiting = WaitingTime(slots=4)
    assert waiting.for_slots(1) is None
    waiting.observe(2.0)
    assert waiting.for_slots(1) == 500
    assert waiting.for_slots(8) == 4000
    assert waiting.for_load(elapsed=3.0, progress=0.0) is None
    assert waiting.for_load(elapsed=3.0, progress=0.75) == 1000
