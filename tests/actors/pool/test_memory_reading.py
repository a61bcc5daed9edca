"""Readings of memory, which take the event loop's time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.pool.ledger import MIN_AGE, MemoryReading


@given(st.floats(0, 2), st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_however_slow_readings_take_one_percent_of_the_time(duration: float, pauses: list[float]) -> None:
    """The first reading, and the one at the end of the time, are not counted."""
    now, spent = 0.0, list[float]()

    def read() -> int:
        nonlocal now
        now += duration
        spent.append(now)
        return len(spent)

    reading = MemoryReading(read, lambda: 7, lambda: now)
    for pause in pauses:
        now += pause
        asked = now
        told = reading.latest(asked)
        assert (told.available, told.now, told.held) == (len(spent), asked, 7)
    between = [later - earlier for earlier, later in pairwise(spent)]
    assert all(gap >= MIN_AGE - 1e-9 and gap >= 99 * duration * (1 - 1e-9) for gap in between)


def test_after_memory_was_freed_it_is_read_anew_at_once() -> None:
    values = iter((5, 9))
    reading = MemoryReading(lambda: next(values), lambda: 0)
    assert reading.latest(1.0).available == 5
    assert reading.latest(1.0 + MIN_AGE / 2).available == 5
    reading.expire()
    assert reading.latest(1.0 + MIN_AGE / 2).available == 9
