"""Tests of the heartbeat that tells a silent job from one that works or rests."""

from __future__ import annotations

from greenroom.actors.core.worker_thread import SILENT_TICKS, Heartbeat


def checks_until_silent(heartbeat: Heartbeat, most: int = 5 * SILENT_TICKS) -> int | None:
    return next((number for number in range(most) if heartbeat.check()), None)


def test_a_job_that_never_tells_anything_is_silent_after_so_many_looks() -> None:
    assert checks_until_silent(Heartbeat()) == SILENT_TICKS


def test_every_sign_of_life_begins_the_count_anew() -> None:
    heartbeat = Heartbeat()
    for _ in range(3):
        heartbeat.beat()
        assert checks_until_silent(heartbeat, SILENT_TICKS) is None
    assert heartbeat.check()


def test_a_job_that_rests_may_be_silent_as_long_as_it_likes() -> None:
    heartbeat = Heartbeat()
    heartbeat.beat()
    heartbeat.pause()
    assert checks_until_silent(heartbeat) is None
    heartbeat.beat()
    assert checks_until_silent(heartbeat) == SILENT_TICKS
