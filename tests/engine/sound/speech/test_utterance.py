"""Joining of speech chunks, and change of tempo."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from greenroom.engine.sound.speech.speech_adapter import Samples
from greenroom.engine.sound.speech.utterance import (
    FADE_SECONDS,
    LONGEST_HOLD,
    ChunkJoiner,
    PlaybackBuffer,
    TempoFilter,
)

RATE = 24_000
FADE = round(FADE_SECONDS * RATE)


def joined(pieces: Iterable[Samples], chunk: int) -> Samples:
    joiner, heard, pieces = ChunkJoiner(RATE), [], list(pieces)
    for number, piece in enumerate(pieces):
        heard += [joiner.push(piece[at : at + chunk]) for at in range(0, len(piece), chunk)]
        heard.append(joiner.end_piece(last=number == len(pieces) - 1))
    return np.concatenate(heard)


@pytest.mark.parametrize("chunk", [1, 7, FADE, 1_000, 100_000])
def test_a_join_has_no_jump_and_takes_no_time(chunk: int) -> None:
    loud = np.full(1_000, 0.8, np.float32)
    heard = joined([loud, -loud, loud], chunk)
    assert len(heard) == 3_000
    assert np.abs(np.diff(np.concatenate([loud, -loud]))).max() == pytest.approx(1.6)
    assert np.abs(np.diff(heard)).max() < 0.02
    away = np.ones(3_000, bool)
    for join in (1_000, 2_000):
        away[join - FADE : join + FADE] = False
    assert (heard[away] == np.concatenate([loud, -loud, loud])[away]).all()


def test_pieces_shorter_than_a_fade_are_joined_too() -> None:
    pieces = [np.full(length, 0.5, np.float32) for length in (3, 0, 1, 200)]
    assert len(joined(pieces, 2)) == 204


@pytest.mark.parametrize("tempo", [0.25, 0.4, 0.5, 0.8, 1.7, 4.0])
def test_tempo_changes_the_length_and_not_the_pitch(tempo: float) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(2 * RATE) / RATE).astype(np.float32)
    tempo_filter = TempoFilter(RATE, tempo)
    pieces = [tempo_filter.push(tone[at : at + 1_920]) for at in range(0, len(tone), 1_920)]
    heard = np.concatenate([*pieces, tempo_filter.finish()])
    assert abs(len(heard) - 2 * RATE / tempo) <= 1
    assert np.abs(heard[-RATE // 50 :]).max() > 0.1  # The last 20 ms are not faded.
    loudest = np.argmax(np.abs(np.fft.rfft(heard))) * RATE / len(heard)
    assert loudest == pytest.approx(440, rel=0.02)


def test_no_speech_has_no_tempo() -> None:
    assert len(TempoFilter(RATE, 2.0).finish()) == 0


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
