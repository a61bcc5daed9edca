"""All open recordings are decoded by one or two threads, and by none of FFmpeg's own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from greenroom.engine.media.decoders import DECODERS, THREADS_AT_ONCE
from greenroom.engine.media.windows import RecordingReader
from greenroom.tests.support.hostile import sounds
from greenroom.tests.support.media.hanging_recordings import decoding_threads
from greenroom.tests.support.media.recordings import RATE, noise, write_recording

_TASKS = Path("/proc/self/task")
MANY = 12


def _threads() -> int:
    """Return this process's threads, including those of libraries if the system lists them."""
    return len(list(_TASKS.iterdir())) if _TASKS.exists() else threading.active_count()


@pytest.fixture
def silent(tmp_path: Path) -> Path:
    """Return hours of silence in FLAC, whose decoder would use every core."""
    path = tmp_path / "silent.flac"
    path.write_bytes(sounds.silent_flac(1.0, 192_000, 8))
    return path


def test_many_recordings_take_no_more_threads_than_one(silent: Path, tmp_path: Path) -> None:
    spoken = write_recording(tmp_path / "spoken.wav", noise(2))
    before = _threads()
    many = [RecordingReader(silent, RATE, client="silent") for _ in range(MANY)]
    plain = RecordingReader(spoken, RATE, client="plain")
    most = heard = 0
    try:
        while (block := plain.read(0.5)) is not None:
            heard += len(block)
            for each in many:  # An engine that skips silence reads on like this.
                each.read(0.0)
            most = max(most, _threads() - before)
    finally:
        for each in (*many, plain):
            each.close()
    assert heard == 2 * RATE
    assert most <= THREADS_AT_ONCE


def test_closing_a_recording_ends_its_decoding_in_the_middle(silent: Path) -> None:
    reader = RecordingReader(silent, RATE, ahead=1e6)
    while reader.facts is None:
        reader.read(0.5)
    reader.close()
    for thread in decoding_threads():
        thread.join(10)
        assert not thread.is_alive()
    heard = 0
    while (block := reader.read(0.0)) is not None and len(block):
        heard += len(block)
    assert heard < 2 * 3_600 * RATE * 0.9
    assert not len(DECODERS)
