"""Trials of transcription architectures: a tiny model of each is opened and compared with mlx-audio."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.libraries import models_of
from greenroom.engine.loading.libraries import import_model_code
from greenroom.engine.sound.transcription.transcription_adapter import (
    MOST_TOKENS,
    SINGLE_PASS,
    make_transcription_adapter,
)
from greenroom.schemas.events.events import Failed
from greenroom.schemas.models.capabilities import CapabilityRecord
from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.transcription_engines import open_transcriber
from greenroom.tests.support.media.audio_files import decode
from greenroom.tests.support.media.recordings import Sound, noise, write_recording
from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper
from greenroom.tests.support.sound.listening_kinds import LISTENING_KINDS
from greenroom.tests.support.sound.outcomes import Outcome, one_line
from greenroom.tests.support.sound.tiny_sound_models import make_sound_model

SECONDS = 1.5


def listening_architectures() -> list[str]:
    """Return the names of the installed mlx-audio's transcription architectures."""
    return sorted(models_of("mlx_audio", "stt/models"))


def hear(architecture: str, folder: Path) -> Outcome:
    """Return the outcome of transcribing with an architecture.

    Args:
        folder: Empty folder, whose name must not suggest an architecture.
    """
    if architecture != "whisper" and architecture not in LISTENING_KINDS:
        return _without_weights(architecture, folder)
    make(architecture, folder)
    try:
        own = _library_text(architecture, folder, _sound(folder, _rate(architecture, folder)))
    except Exception as error:
        return Outcome("library fails", f"{type(error).__name__}: {one_line(error)}")
    with open_transcriber(folder) as transcriber:
        transcript = transcriber.transcribe(folder / "recording.wav")
    if isinstance(transcript.end, Failed):
        return Outcome("broken", transcript.end.problem.detail)
    if not own:
        return Outcome(
            "opened", "its tiny model says nothing of noise, and Greenroom said " + transcript.text
        )
    return Outcome("equal") if transcript.text.strip() == own else Outcome("broken", transcript.text)


def make(architecture: str, folder: Path) -> None:
    """Make the tiny model of an architecture."""
    if architecture == "whisper":
        make_tiny_whisper(folder)
    else:
        make_sound_model(folder, "stt", architecture, LISTENING_KINDS[architecture])


def _without_weights(architecture: str, folder: Path) -> Outcome:
    (folder / "config.json").write_text(json.dumps({"model_type": architecture}))
    record = CapabilityRecord("transcription", "default", architecture, 0)
    try:
        make_transcription_adapter("model", folder, record)
        import_model_code(f"mlx_audio.stt.models.{architecture}")
    except ProblemError as error:
        return Outcome("refused", error.problem.detail.partition(" These are: ")[0])
    return Outcome("opened", "no tiny model of it is made here")


def _library_model(architecture: str, folder: Path) -> Any:
    load = import_model_code("mlx_audio.stt.utils").load_model
    return load(folder, model_type=architecture, model_name_parts=[architecture])


def _rate(architecture: str, folder: Path) -> int:
    return int(getattr(_library_model(architecture, folder), "sample_rate", None) or 16_000)


def _sound(folder: Path, rate: int) -> Sound:
    """Write a recording at a model's sample rate; return its samples as another library reads them."""
    path = write_recording(folder / "recording.wav", noise(SECONDS), "wavfloat", rate=rate)
    return decode(path.read_bytes()).samples


def _library_text(architecture: str, folder: Path, sound: Sound) -> str:
    import mlx.core as mx

    bounded = architecture in SINGLE_PASS and SINGLE_PASS[architecture].bounded
    options = {"max_tokens": MOST_TOKENS} if bounded else {}
    answer = _library_model(architecture, folder).generate(mx.array(sound), **options)
    return str(getattr(answer, "text", answer)).strip()
