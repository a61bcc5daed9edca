"""All open recordings are decoded by one or two threads, and by none of FFmpeg's own."""

from __future__ import annotations

import threading
from pathlib import Path

import attrs
import pytest

from greenroom.engine.media.decoders import (
    DECODERS,
    MOST_OPEN,
    OPEN_AT_ONCE,
    THREADS_AT_ONCE,
    UNMOVED_SECONDS,
    DecoderTurns,
)
from greenroom.engine.media.recording_windows import RecordingReader
from greenroom.tests.support.engines.fixed_costs import CountedClock
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.media.hanging_recordings import decoding_threads
from greenroom.tests.support.media.recordings import RATE, noise, write_recording
from greenroom.tests.support.servers.bounded_waits import wait_until

_TASKS = Path("/proc/self/task")
MANY = 12


def _threads() -> int:
    """Return this process's threads, including those of libraries if the system lists them."""
    return len(list(_TASKS.iterdir())) if _TASKS.exists() else threading.active_count()


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """Return an hour of silence in FLAC, whose decoder would use every core."""
    path = tmp_path / "silent.flac"
    path.write_bytes(sounds.silent_flac(1.0, 192_000, 8))
    return path


def test_many_recordings_take_no_more_threads_than_one(silent: Path, tmp_path: Path) -> None:
    spoken = write_recording(tmp_path / "spoken.wav", noise(2))
    before = _threads()
    many = [RecordingReader(silent, RATE, client="silent") for _ in range(MANY)]
    plain = RecordingReader(spoken, RATE, client="plain")
    heard = 0
    try:
        while (block := plain.read(0.5)) is not None:
            heard += len(block)
            for each in many:  # An engine that skips silence reads on like this.
                each.read(0.0)
            # One whose turn is over may still be there beside the next; those of FFmpeg would stay.
            wait_until(lambda: _threads() - before <= THREADS_AT_ONCE)
    finally:
        for each in (*many, plain):
            each.close()
    assert heard == 2 * RATE


def test_closing_a_recording_ends_its_decoding_in_the_middle(silent: Path) -> None:
    others = len(DECODERS)
    reader = RecordingReader(silent, RATE, ahead=1e6)
    while reader.facts is None:
        reader.read(0.5)
    reader.close()
    wait_until(lambda: not decoding_threads())
    heard = 0
    while (block := reader.read(0.0)) is not None and len(block):
        heard += len(block)
    assert heard < 3_600 * RATE
    assert len(DECODERS) == others


@attrs.define(eq=False)
class Recorded:
    """A recording with a number of remaining turns."""

    turns: int
    client: str = ""
    length: int = attrs.field(default=attrs.Factory(lambda self: self.turns, takes_self=True))

    @property
    def is_open(self) -> bool:
        return 0 < self.turns < self.length

    @property
    def wants_decoding(self) -> bool:
        return self.turns > 0


class Unread(Recorded):
    """A recording that needs no further turn for now."""

    @property
    def wants_decoding(self) -> bool:
        return self.turns == self.length


def add(turns: DecoderTurns[Recorded], client: str, recording: Recorded) -> None:
    recording.client = client
    turns.add(recording)


def take(turns: DecoderTurns[Recorded], cost: float) -> Recorded:
    recording = turns.start(1.0)
    assert recording is not None
    recording.turns -= 1
    assert turns.stop(recording, cost)
    return recording


def test_many_silent_recordings_of_one_client_hold_up_none_of_another() -> None:
    turns: DecoderTurns[Recorded] = DecoderTurns(1, CountedClock())
    silent = [Recorded(1_000) for _ in range(16)]
    for recording in silent:
        add(turns, "silent", recording)
    for _ in range(100):
        take(turns, 1_500_000.0)
    plain = Recorded(20)
    add(turns, "plain", plain)
    taken = 0
    while plain.turns:
        taken += take(turns, 8_000.0) is not plain
        assert taken < 22
    assert sum(take(turns, 1.0) in silent for _ in range(10)) > 5


def test_whoever_has_much_to_decode_has_fewer_turns() -> None:
    """Eight channels at 192 kHz cost 96 times as much as one at 16 kHz."""
    turns: DecoderTurns[Recorded] = DecoderTurns(1, CountedClock())
    large, small = Recorded(1_000), Recorded(1_000)
    add(turns, "large", large)
    add(turns, "small", small)
    costs = {large: 768_000.0, small: 8_000.0}
    for _ in range(97):
        recording = turns.start(1.0)
        assert recording is not None
        recording.turns -= 1
        turns.stop(recording, costs[recording])
    assert 1_000 - large.turns <= 2


def test_no_more_are_decoded_at_once_than_may_be_but_for_those_that_hang() -> None:
    clock = CountedClock()
    turns: DecoderTurns[Recorded] = DecoderTurns(2, clock)
    recordings = [Recorded(5) for _ in range(4)]
    for recording in recordings:
        add(turns, "", recording)
    patience = 1e9
    begun = [turns.start(patience), turns.start(patience)]
    assert None not in begun
    assert turns.start(patience) is None
    third = turns.start(0.0)
    assert third is not None
    assert third not in begun


def test_a_recording_that_is_let_go_is_decoded_no_further() -> None:
    turns: DecoderTurns[Recorded] = DecoderTurns(1, CountedClock())
    recording = Recorded(5)
    add(turns, "", recording)
    assert turns.start(1.0) is recording
    assert not turns.remove(recording), "whoever decodes it closes the file"
    assert turns.hung(1e9) == 0
    assert turns.hung(0.0) == 1
    assert not turns.stop(recording, 1.0)
    assert turns.start(1.0) is None
    assert turns.hung(0.0) == 0


def test_only_so_many_recordings_have_a_decoder_at_once() -> None:
    turns: DecoderTurns[Recorded] = DecoderTurns(1, CountedClock())
    recordings = [Recorded(3) for _ in range(4 * OPEN_AT_ONCE)]
    for recording in recordings:
        add(turns, "one", recording)
    most = 0
    for _ in range(3 * len(recordings)):
        take(turns, 1.0)
        most = max(most, sum(recording.is_open for recording in recordings))
    assert most == OPEN_AT_ONCE
    assert not any(recording.turns for recording in recordings)


def test_the_only_recording_of_a_client_need_not_wait_for_those_of_others() -> None:
    turns: DecoderTurns[Recorded] = DecoderTurns(1, CountedClock())
    for _ in range(4 * OPEN_AT_ONCE):
        add(turns, "many", Recorded(1_000))
    for _ in range(100):
        take(turns, 1_000.0)
    plain = Recorded(20)
    add(turns, "plain", plain)
    while plain.turns:
        take(turns, 1.0)
    others = [Recorded(1_000) for _ in range(2 * MOST_OPEN)]
    for number, recording in enumerate(others):
        add(turns, str(number), recording)
    for _ in range(10 * MOST_OPEN):
        take(turns, 1.0)
    assert sum(recording.is_open for recording in others) == MOST_OPEN - OPEN_AT_ONCE


def test_recordings_that_nobody_reads_on_hold_up_no_other_for_ever() -> None:
    clock = CountedClock()
    turns: DecoderTurns[Recorded] = DecoderTurns(1, clock)
    unread = [Unread(2) for _ in range(OPEN_AT_ONCE)]
    for each in unread:
        add(turns, "one", each)
        take(turns, 1.0)
    add(turns, "one", last := Recorded(5))
    assert turns.start(1.0) is None
    clock.now += UNMOVED_SECONDS + 1
    assert take(turns, 1.0) is last
