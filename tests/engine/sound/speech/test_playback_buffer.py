"""Times at which speech is sent to the client."""

from __future__ import annotations

import pytest

from greenroom.engine.sound.speech.utterance import LONGEST_HOLD, PlaybackBuffer


class Clock:
    """A clock in seconds, set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_sound_is_due_at_once() -> None:
    assert PlaybackBuffer(Clock()).is_due


def test_a_listener_with_little_left_waits_for_no_more() -> None:
    lead = PlaybackBuffer(clock := Clock())
    lead.give(0.08)
    assert not lead.is_due
    clock.now += 0.03  # 50 ms are left
    assert lead.is_due
    clock.now += 1.0
    assert lead.is_due


def test_the_longest_hold_does_not_grow_with_the_lead() -> None:
    lead = PlaybackBuffer(clock := Clock())
    lead.give(3_600.0)
    clock.now += LONGEST_HOLD * 0.9
    assert not lead.is_due
    clock.now += LONGEST_HOLD * 0.2
    assert lead.is_due


@pytest.mark.parametrize("speed", [0.8, 1.2, 4.0, 15.0])
def test_nobody_hears_a_gap_that_the_model_does_not_make(speed: float) -> None:
    """A step of 50 ms yields `speed` times as much audio; held-back samples never cause a gap in playback."""
    lead = PlaybackBuffer(clock := Clock())
    held = given = dry_held = dry_at_once = 0.0
    began = clock.now
    for step in range(1, 400):
        clock.now += 0.05
        held += 0.05 * speed
        if lead.is_due:
            began = clock.now if not given else began
            lead.give(held)
            given, held = given + held, 0.0
        dry_held = max(dry_held, clock.now - began - given)
        dry_at_once = max(dry_at_once, (step - 1) * 0.05 - step * 0.05 * speed)
    assert dry_held <= max(dry_at_once, 0) + 1e-9
