"""Estimates of a request's waiting time."""

from __future__ import annotations

import pytest

from greenroom.actors.pool.model_record import MAX_RETRY, RETRY_UNKNOWN, WaitingTime, seconds_until_retry


def test_waiting_times_are_told_once_there_is_something_to_go_by() -> None:
    waiting = WaitingTime(slots=2)
    busy, asked = [(0.5, None), (1.5, None)], [(1, None), (1, None), (2, None), (1, None)]
    assert waiting.of_waiting(busy, asked) == [None] * 4
    waiting.observe(2.0)
    assert waiting.of_waiting(busy, asked) == [500, 1500, 2500, 4500]
    assert waiting.of_waiting([], asked[:2]) == [0, 0]
    assert waiting.for_load(elapsed=3.0, progress=0.0) is None
    assert waiting.for_load(elapsed=3.0, progress=0.75) == 1000


@pytest.mark.parametrize(
    ("earlier", "whole", "tokens", "from_"),
    [
        ([(0.077, 10)], 10.0, 1_300, 0.0),  # a short answer tells the pace of one that may be long
        ([(0.077, None)], 10.0, None, 3.4),  # without a limit, only its own age tells that it is long
        ([(2.0, None)] * 5, 2.0, None, 0.0),
        ([(0.1, None)] * 3 + [(9.0, None)] * 2, 9.0, None, 0.2),  # whoever outlives the short ones is long
        ([(0.1, 10), (8.0, 1_000)] * 3, 8.0, 1_000, 0.0),
    ],
)
def test_estimates_are_within_a_factor_of_two_of_what_happens(
    earlier: list[tuple[float, int | None]], whole: float, tokens: int | None, from_: float
) -> None:
    waiting = WaitingTime(slots=1)
    for seconds, limit in earlier:
        waiting.observe(seconds, limit)
    for elapsed in (from_, from_ + 0.1 * (whole - from_), from_ + 0.4 * (whole - from_)):
        (told,) = waiting.of_waiting([(elapsed, tokens)], [(1, tokens)])
        assert told is not None
        assert 0.5 <= told / 1000 / (whole - elapsed) <= 2, (elapsed, told)


def test_a_retry_is_told_in_whole_seconds_that_clients_wait_for() -> None:
    assert [seconds_until_retry(eta) for eta in (None, 0, 1, 1001)] == [RETRY_UNKNOWN, 1, 1, 2]
    assert seconds_until_retry(10**9) == MAX_RETRY < 120
