"""Transcripts equal those of mlx-audio."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from greenroom.engine.sound.transcription.whisper_recognizer import TEMPERATURES
from greenroom.schemas.events.events import Failed, Finished
from greenroom.schemas.events.result_events import Recording
from greenroom.schemas.problems import ProblemError
from greenroom.tests.engine.sound.transcription.conftest import library_model
from greenroom.tests.support.engines.transcription_engines import Transcriber, open_transcriber
from greenroom.tests.support.media.recordings import noise, silence, write_recording
from greenroom.tests.support.models.tiny_whisper import TEXT, make_random_whisper, make_tiny_whisper

PAIRS = (
    "<|0.00|>",
    "Ġhello",
    "Ġfrom",
    "<|5.00|>",
    "<|5.02|>",
    "Ġthe",
    "Ġtiny",
    "<|12.00|>",
    "<|12.02|>",
    "Ġwhisper.",
    "<|endoftext|>",
)
"""Segments of which the last one is incomplete, and transcribed again in the next window."""


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "recording.wav", noise(12.4))


def fields(segment: Any) -> tuple[Any, ...]:
    """Return the members of a segment that both libraries have, with times in hundredths of seconds."""
    get = segment.__getitem__ if isinstance(segment, dict) else segment.__getattribute__
    times = (round(get(name) * 100) for name in ("start", "end"))
    others = (get(name) for name in ("text", "seek", "temperature", "compression_ratio"))
    return (*times, *others, tuple(get("tokens")))


@pytest.mark.parametrize(
    ("task", "prompt"),
    [("transcribe", ""), pytest.param("translate", "tiny names", marks=pytest.mark.deep)],
)
@pytest.mark.deep
def test_a_short_recording_reads_as_mlx_audio_has_it(
    multilingual: Transcriber, tiny_whisper: Path, recording: Path, task: str, prompt: str
) -> None:
    model = library_model(tiny_whisper)
    theirs = model.generate(str(recording), task=task, initial_prompt=prompt or None)
    ours = multilingual.transcribe(recording, task=task, prompt=prompt)
    assert ours.text == theirs.text != ""
    assert [fields(each) for each in ours.segments] == [fields(each) for each in theirs.segments]
    for one, other in zip(ours.segments, theirs.segments, strict=True):
        assert one.avg_logprob == pytest.approx(other["avg_logprob"], abs=1e-3)
        assert one.no_speech_prob == pytest.approx(other["no_speech_prob"], abs=1e-3)
    assert ours.recording == Recording(12.4, "de")
    assert theirs.language == "de"


@pytest.mark.deep
def test_a_long_recording_without_pauses_reads_as_mlx_audio_has_it(tmp_path: Path) -> None:
    folder = make_tiny_whisper(tmp_path / "model", script=PAIRS)
    path = write_recording(tmp_path / "recording.wav", noise(36))
    theirs = library_model(folder).generate(str(path))
    with open_transcriber(folder) as transcriber:
        ours = transcriber.transcribe(path)
    for segment in theirs.segments:  # Its last segment may end after the recording.
        segment["end"] = min(segment["end"], 36.0)
    assert [fields(each) for each in ours.segments] == [fields(each) for each in theirs.segments]
    assert len({each.seek for each in ours.segments}) > 2


@pytest.mark.deep
def test_words_are_those_that_mlx_audio_tells_apart(
    english: Transcriber, english_folder: Path, recording: Path
) -> None:
    theirs = library_model(english_folder).generate(str(recording), word_timestamps=True)
    (ours,) = english.transcribe(recording, word_timestamps=True).segments
    (segment,) = theirs.segments
    assert [word.text for word in ours.words] == [word["word"] for word in segment["words"]]
    assert "".join(word.text for word in ours.words) == TEXT
    for one, other in zip(ours.words, segment["words"], strict=True):
        assert one.probability == pytest.approx(other["probability"], abs=1e-2)
    times = [time for word in ours.words for time in (word.start, word.end)]
    assert times == sorted(times)


@pytest.mark.deep
def test_a_recording_with_silences_has_segments_where_something_is_said(
    english: Transcriber, tmp_path: Path
) -> None:
    sound = np.concatenate([silence(40), noise(6), silence(200), noise(8), silence(61)])
    path = write_recording(tmp_path / "recording.flac", sound, "flac")
    transcript = english.transcribe(path)
    assert transcript.text == TEXT * 2
    starts = [segment.start for segment in transcript.segments]
    assert starts == [pytest.approx(39.5), pytest.approx(245.5)]
    assert isinstance(transcript.end, Finished)
    assert transcript.end.usage.heard == pytest.approx(len(sound) / 16_000)


@pytest.mark.deep
def test_a_window_with_hardly_any_text_is_decoded_again_without_the_text_before(
    english: Transcriber, tmp_path: Path
) -> None:
    generated = []
    for length in (29, 59):
        transcript = english.transcribe(write_recording(tmp_path / "recording.wav", noise(length)))
        assert isinstance(transcript.end, Finished)
        generated.append(transcript.end.usage.generated)
    assert transcript.text == TEXT * 2
    assert generated[1] == 3 * generated[0]


@pytest.mark.deep
def test_nothing_is_made_up_about_silence(english: Transcriber, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "recording.flac", silence(900), "flac")
    transcript = english.transcribe(path)
    assert transcript.segments == []
    assert isinstance(transcript.end, Finished)
    assert transcript.end.usage.generated == 0
    assert transcript.end.usage.heard == pytest.approx(900)


@pytest.mark.deep
def test_language_is_detected_unless_it_is_told(multilingual: Transcriber, recording: Path) -> None:
    for asked, found in ((None, "de"), ("fr", "fr"), ("French", "fr"), ("pt-BR", "pt")):
        transcript = multilingual.transcribe(recording, language=asked)
        assert transcript.recording is not None
        assert transcript.recording.language == found


@pytest.mark.deep
def test_a_recording_in_which_nothing_is_heard_has_no_language(tmp_path: Path, recording: Path) -> None:
    silent = ("<|0.00|>", "<|endoftext|>")
    folder = make_tiny_whisper(tmp_path / "silent", multilingual=True, script=silent, language="nn")
    with open_transcriber(folder) as transcriber:
        transcripts = [transcriber.transcribe(recording, language=asked) for asked in (None, "de")]
    assert [transcript.text for transcript in transcripts] == ["", ""]
    assert [each.recording and each.recording.language for each in transcripts] == [None, "de"]


@pytest.mark.parametrize("left_out", [r"<\|\d+\.\d\d\|>", r"<\|notimestamps\|>"])
def test_a_tokenizer_may_leave_out_the_time_stamps_and_nothing_else(
    english_folder: Path, tmp_path: Path, recording: Path, left_out: str
) -> None:
    folder = shutil.copytree(english_folder, tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = [
        token for token in content["added_tokens"] if not re.fullmatch(left_out, token["content"])
    ]
    for vocabulary in (content["model"]["vocab"], names := json.loads((folder / "vocab.json").read_text())):
        for name in [name for name in vocabulary if re.fullmatch(left_out, name)]:
            del vocabulary[name]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "vocab.json").write_text(json.dumps(names))
    if "notimestamps" in left_out:
        with (
            pytest.raises(ProblemError, match=r"tokenizer has no <.notimestamps.>"),
            open_transcriber(folder),
        ):
            pass
        return
    with open_transcriber(folder) as transcriber:
        assert transcriber.transcribe(recording).text == TEXT


def test_what_a_model_cannot_do_is_refused_by_name(
    english: Transcriber, multilingual: Transcriber, recording: Path
) -> None:
    for transcriber, asked, param in (
        (english, {"language": "de"}, "language"),
        (multilingual, {"language": "klingon"}, "language"),
        (english, {"task": "translate"}, "model"),
    ):
        with pytest.raises(ProblemError) as refused:
            transcriber.submit(recording, **asked)
        assert (refused.value.problem.status, refused.value.problem.param) == (400, param)


@pytest.mark.deep
def test_a_model_of_noise_ends_after_few_attempts_with_finite_numbers(
    tmp_path: Path, recording: Path
) -> None:
    folder = make_random_whisper(tmp_path / "model")
    with open_transcriber(folder) as transcriber:
        transcript = transcriber.transcribe(recording)
    assert isinstance(transcript.end, Finished)
    assert transcript.end.usage.generated <= 224 * len(TEMPERATURES)
    for segment in transcript.segments:
        numbers = (segment.avg_logprob, segment.compression_ratio, segment.no_speech_prob)
        assert all(math.isfinite(number) for number in (*numbers, segment.start, segment.end))


def test_a_model_that_computes_no_numbers_writes_nothing(tmp_path: Path, recording: Path) -> None:
    folder = make_tiny_whisper(tmp_path / "broken")
    weights: Any = mx.load(str(folder / "model.safetensors"))
    spoiled = {
        name: mx.full(value.shape, mx.nan, value.dtype) if "ln_post" in name else value
        for name, value in weights.items()
    }
    assert any("ln_post" in name for name in weights)
    mx.eval(spoiled)
    mx.save_safetensors(str(folder / "model.safetensors"), spoiled)
    with open_transcriber(folder) as transcriber:
        end = transcriber.transcribe(recording).end
    assert isinstance(end, Failed)
    assert (end.problem.status, end.problem.code) == (503, "model_broken")
