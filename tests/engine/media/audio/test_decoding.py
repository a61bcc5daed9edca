"""Decoding of recordings while requests are prepared."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from greenroom.engine.media import decoders, windows
from greenroom.engine.media.decoders import DECODERS, THREADS_AT_ONCE
from greenroom.engine.media.windows import decode_recording
from greenroom.engine.resources.preparation_steps import PENDING, run_to_end
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.media.hanging_recordings import decoding_threads, hanging_decoders
from greenroom.tests.support.media.recordings import RATE, silence, write_recording


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
    """A request beyond the limit waits for the decoder of the next one that ends."""
    monkeypatch.setattr(decoders, "PATIENCE", math.inf)
    with hanging_decoders():
        begun = [decode_recording(b"sound", RATE, 1) for _ in range(windows.AT_ONCE + 1)]
        assert all(next(steps) == PENDING for steps in begun)
        assert len(decoding_threads()) == THREADS_AT_ONCE
        assert len(DECODERS) == windows.AT_ONCE
        begun[0].close()
        assert next(begun[-1]) == PENDING
        assert len(DECODERS) == windows.AT_ONCE
        for steps in begun:
            steps.close()
        assert not len(DECODERS)
    assert not decoding_threads()
