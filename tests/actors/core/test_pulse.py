"""Tests of the heartbeat that tells a silent job from one that works or rests."""

from __future__ import annotations

from greenroom.actors.core.pulse import SILENT_TICKS, Pulse


def looks_until_silent(pulse: Pulse, most: int = 5 * SILENT_TICKS) -> int | None:
    return next((number for number in range(most) if pulse.look()), None)


def test_a_job_that_never_tells_anything_is_silent_after_so_many_looks() -> None:
    assert looks_until_silent(Pulse()) == SILENT_TICKS


def test_every_sign_of_life_begins_the_count_anew() -> None:
    pulse = Pulse()
    for _ in range(3):
        pulse.beat()
        assert looks_until_silent(pulse, SILENT_TICKS) is None
    assert pulse.look()


def test_a_job_that_rests_may_be_silent_as_long_as_it_likes() -> None:
    pulse = Pulse()
    pulse.beat()
    pulse.rest()
    assert looks_until_silent(pulse) is None
    pulse.beat()
    assert looks_until_silent(pulse) == SILENT_TICKS
