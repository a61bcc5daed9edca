"""Late device errors: no audio or transcript that was computed wrong reaches its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

from greenroom.engine.sound.speech.speech_engine import SpeechEngine
from greenroom.engine.sound.transcription.transcription_engine import TranscriptionEngine
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.events.result_events import AudioChunk, Segment
from greenroom.tests.support.engines.late_errors import LateError
from greenroom.tests.support.engines.schedules import deep_only, soak_only
from greenroom.tests.support.engines.spoken_requests import open_adapter, open_engine, spoken
from greenroom.tests.support.engines.transcription_engines import Transcriber, open_transcriber
from greenroom.tests.support.media.recordings import noise, write_recording

Result = tuple[object, ...]
"""The output of a request: audio, or segments."""

LATE = [20, *deep_only(1), *soak_only(0, 2, 3, 5, 9)]
SPOILED = [1, 4, *soak_only(2, 3, 6, 9, 14)]

TEXTS = {"first": "One two three.", "second": "Four."}


def ended(engine: SpeechEngine | TranscriptionEngine) -> dict[str, Result]:
    """Answer all; return the output of ended requests, whether the engine fails or not."""
    events: dict[str, list[InferenceEvent]] = {}
    try:
        while engine.has_work:
            for name, event in engine.step():
                events.setdefault(name, []).append(event)
    except RuntimeError:
        pass
    assert not any(isinstance(each[-1], Failed) for each in events.values())
    return {
        name: tuple(event for event in each if isinstance(event, AudioChunk | Segment))
        for name, each in events.items()
        if isinstance(each[-1], Finished)
    }


def sound_of(result: Result) -> bytes:
    return b"".join(event.samples for event in result if isinstance(event, AudioChunk))


def begin_to_speak(folder: Path) -> SpeechEngine:
    engine, adapter = open_engine(folder), open_adapter(folder)
    for name, text in TEXTS.items():
        engine.submit(request := spoken(text, name, client=name), adapter.prepare_input(request))
    mx.random.seed(3)
    return engine


@pytest.fixture(scope="module")
def spoken_rightly(tiny_pocket: Path) -> dict[str, Result]:
    results = ended(begin_to_speak(tiny_pocket))
    assert results.keys() == TEXTS.keys()
    return results


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("spoiled", SPOILED)
def test_no_text_is_spoken_to_its_end_otherwise(
    tiny_pocket: Path,
    spoken_rightly: dict[str, Result],
    monkeypatch: pytest.MonkeyPatch,
    late: int,
    spoiled: int,
) -> None:
    engine = begin_to_speak(tiny_pocket)
    error = LateError(monkeypatch, late, spoiled)
    results = ended(engine)
    engine.close()
    assert error.thrown
    for name, result in results.items():
        assert sound_of(result) == sound_of(spoken_rightly[name])


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.deep
def test_no_recording_is_written_down_to_its_end_otherwise(
    tiny_whisper: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, spoiled: int
) -> None:
    files = [write_recording(tmp_path / f"{seconds}.wav", noise(seconds)) for seconds in (2, 3)]
    with open_transcriber(tiny_whisper) as transcriber:
        right = {file: ended_of(transcriber, [file])[file] for file in files}
        error = LateError(monkeypatch, late, spoiled)
        for file, result in ended_of(transcriber, files).items():
            assert result == right[file]
        assert error.thrown


def ended_of(transcriber: Transcriber, files: Sequence[Path]) -> dict[Path, Result]:
    """Return the segments of the recordings that the engine finished."""
    requests = {transcriber.submit(file, client=file.name): file for file in files}
    return {requests[name]: result for name, result in ended(transcriber.engine).items()}
