"""Token buckets, by a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.http.guard.rate_limits import MINUTE, TokenBucket


def test_a_minutes_allowance_is_there_at_once_and_comes_back_evenly() -> None:
    bucket = TokenBucket(6, now=100.0)
    for _ in range(6):
        assert bucket.seconds_until(1, 100.0) == 0
        bucket.take(1, 100.0)
    assert (bucket.left(100.0), bucket.seconds_until(1, 100.0)) == (0, 10.0)
    assert bucket.left(110.0) == 1
    assert bucket.left(100.0 + 10 * MINUTE) == 6


def test_a_debt_is_worked_off_before_anything_is_left() -> None:
    bucket = TokenBucket(60, now=0.0)
    bucket.take(90, 0.0)
    assert (bucket.left(0.0), bucket.seconds_until(1, 0.0)) == (0, 31.0)
    assert bucket.left(31.0) == 1


def test_more_than_the_allowance_waits_for_a_full_bucket_not_for_ever() -> None:
    bucket = TokenBucket(10, now=0.0)
    bucket.take(10, 0.0)
    assert bucket.seconds_until(1_000, 0.0) == MINUTE


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), max_size=40),
)
def test_no_more_is_granted_than_a_burst_and_the_rate_allow(
    per_minute: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now, granted = TokenBucket(per_minute, 0.0), 0.0, 0
    for pause, amount in steps:
        now += pause
        if amount <= bucket.left(now):
            bucket.take(amount, now)
            granted += amount
    assert granted <= per_minute * (1 + now / MINUTE) + 1e-6 * per_minute


def test_a_clock_that_stands_still_fills_nothing() -> None:
    bucket = TokenBucket(1, now=5.0)
    bucket.take(1, 5.0)
    assert bucket.left(5.0) == 0
    assert bucket.seconds_until(1, 5.0) == pytest.approx(MINUTE)
