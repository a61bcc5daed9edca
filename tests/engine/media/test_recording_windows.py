"""Recordings are cut in pauses, and silence is skipped."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.media import decoders, recording_windows
from greenroom.engine.media.decoders import DECODERS, THREADS_AT_ONCE
from greenroom.engine.media.recording_windows import Window, WindowBuffer, decode_recording
from greenroom.engine.resources.preparation_steps import PENDING, run_to_end
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.media.hanging_recordings import decoding_threads, hanging_decoders
from greenroom.tests.support.media.recordings import RATE, Sound, noise, silence, write_recording
from greenroom.tests.support.servers.bounded_waits import wait_until


def test_all_samples_of_a_recording_are_decoded(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording.wav", silence(3))
    decoded = run_to_end(decode_recording(path, RATE, 100 * RATE))
    assert len(decoded.samples) == 3 * RATE
    assert decoded.facts.duration == pytest.approx(3.0)


def test_no_more_is_decoded_than_is_wanted(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording.wav", silence(30))
    assert RATE <= len(run_to_end(decode_recording(path.read_bytes(), RATE, RATE)).samples) < 2 * RATE


def test_a_file_that_is_no_recording_is_refused() -> None:
    with pytest.raises(ProblemError) as refused:
        run_to_end(decode_recording(np.random.default_rng(0).bytes(10_000), RATE, 1, "sound"))
    assert refused.value.problem.param == "sound"


def test_decoders_of_requests_are_few_and_end_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request beyond the limit, or a client's second one, waits for the decoder of one that ends."""
    monkeypatch.setattr(decoders, "PATIENCE", math.inf)
    with hanging_decoders():
        others = len(DECODERS)
        clients = ["0", *map(str, range(recording_windows.AT_ONCE + 1))]
        begun = [decode_recording(b"sound", RATE, 1, client=client) for client in clients]
        assert all(next(steps) == PENDING for steps in begun)
        wait_until(lambda: len(decoding_threads()) == THREADS_AT_ONCE)  # those of earlier tests have ended
        assert len(DECODERS) - others == recording_windows.AT_ONCE
        begun[0].close()
        assert next(begun[-1]) == PENDING
        assert len(DECODERS) - others == recording_windows.AT_ONCE
        for steps in begun:
            steps.close()
        assert len(DECODERS) == others
    wait_until(lambda: not decoding_threads())


def cut(sound: Sound, block: float = 0.5) -> list[Window]:
    """Return all windows of audio that arrives in blocks of `seconds`."""
    buffer = WindowBuffer(RATE, 30)
    blocks = iter(np.array_split(sound, max(1, round(len(sound) / RATE / block))))
    windows: list[Window] = []
    while True:
        while not buffer.is_ready:
            piece = next(blocks, None)
            if piece is None:
                buffer.end()
            else:
                buffer.add(piece)
        if buffer.heard == buffer.position:
            return windows
        if (window := buffer.next_window()) is not None:
            windows.append(window)
            buffer.advance(len(window.samples))


def seconds(windows: list[Window]) -> list[tuple[float, float]]:
    return [(round(w.start / RATE, 1), round(len(w.samples) / RATE, 1)) for w in windows]


def test_a_short_recording_is_one_window() -> None:
    (window,) = cut(noise(7.3))
    assert (window.start, len(window.samples), window.is_last) == (0, round(7.3 * RATE), True)


def test_without_a_pause_windows_are_as_long_as_they_may_be() -> None:
    assert seconds(cut(noise(70))) == [(0, 30), (30, 30), (60, 10)]


def test_a_window_ends_in_the_middle_of_a_late_pause() -> None:
    quiet = noise(0.6, level=0.001)
    sound = np.concatenate([noise(27), quiet, noise(20)])
    (first, second) = cut(sound)
    assert 27.05 < len(first.samples) / RATE < 27.55
    assert second.start == len(first.samples)
    assert second.is_last


def test_an_early_pause_does_not_shorten_a_window() -> None:
    for early in (3, 15, 21, 24):
        sound = np.concatenate([noise(early), noise(0.6, level=0.001), noise(40)])
        assert seconds(cut(sound))[0] == (0, 30)


@pytest.mark.parametrize("length", [0.0, 10.0, 3600.0])
def test_silence_is_no_window(length: float) -> None:
    assert cut(silence(length), block=60) == []


def test_long_silences_are_left_out_and_times_stay_true() -> None:
    sound = np.concatenate([silence(50), noise(4), silence(70), noise(5), silence(3)])
    windows = cut(sound)
    assert seconds(windows) == [(49.5, 5.0), (123.5, 6.0)]
    first = windows[0]
    assert np.array_equal(first.samples, sound[first.start : first.start + len(first.samples)])


def test_short_silences_stay_with_the_words() -> None:
    sound = np.concatenate([silence(1), noise(4), silence(1.5), noise(4)])
    assert seconds(cut(sound)) == [(0, 10.5)]


def test_every_sample_that_is_not_silent_is_in_one_window() -> None:
    parts = [noise(17, 1), silence(4), noise(33, 2), silence(0.5), noise(41, 3), silence(90), noise(1, 4)]
    sound = np.concatenate(parts)
    heard = np.zeros(len(sound), np.int8)
    for window in cut(sound, block=0.37):
        heard[window.start : window.start + len(window.samples)] += 1
    assert heard.max() == 1
    assert not np.abs(sound[heard == 0]).any()


def test_it_does_not_matter_in_which_blocks_a_recording_comes() -> None:
    sound = np.concatenate([noise(17, 1), silence(4), noise(33, 2), noise(0.4, level=0.001), noise(20, 3)])
    assert seconds(cut(sound, 0.5)) == seconds(cut(sound, 7)) == seconds(cut(sound, 200))
