"""The limit on a model's restarts within a period."""

from __future__ import annotations

from greenroom.actors.pool.residence_rules import RestartIntensity


def test_a_model_that_keeps_failing_is_left_alone_until_the_period_is_over() -> None:
    intensity = RestartIntensity(limit=3, period=60.0)
    for now in (0.0, 10.0):
        intensity.record_failure(now)
    assert intensity.seconds_left(10.0) == 0.0
    intensity.record_failure(20.0)
    assert intensity.seconds_left(20.0) == 40.0
    assert intensity.seconds_left(61.0) == 0.0
    intensity.record_failure(62.0)
    assert intensity.seconds_left(62.0) == 8.0
