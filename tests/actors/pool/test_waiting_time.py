"""Estimates of a request's waiting time."""

from __future__ import annotations

from greenroom.actors.pool.waiting_time import MAX_RETRY, RETRY_UNKNOWN, WaitingTime, seconds_until_retry


def test_waiting_times_are_told_once_there_is_something_to_go_by() -> None:
    waiting = WaitingTime(slots=4)
    assert waiting.for_slots(1) is None
    waiting.observe(2.0)
    assert waiting.for_slots(1) == 500
    assert waiting.for_slots(8) == 4000
    assert waiting.for_load(elapsed=3.0, progress=0.0) is None
    assert waiting.for_load(elapsed=3.0, progress=0.75) == 1000


def test_a_retry_is_told_in_whole_seconds_that_clients_wait_for() -> None:
    assert [seconds_until_retry(eta) for eta in (None, 0, 1, 1001)] == [RETRY_UNKNOWN, 1, 1, 2]
    assert seconds_until_retry(10**9) == MAX_RETRY < 120
