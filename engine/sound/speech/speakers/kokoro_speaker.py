"""The speaker for Kokoro, which converts text to phonemes and synthesizes a piece at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from greenroom.engine.catalog.files.missing_packages import library_missing
from greenroom.engine.catalog.files.voices import list_voices
from greenroom.engine.sound.speech.preparing.kokoro_languages import kokoro_voice
from greenroom.engine.sound.speech.preparing.prepared_speech import PreparedSpeech
from greenroom.engine.sound.speech.speakers.speaker import Spoken, as_samples
from greenroom.schemas.problems import ProblemError

_KEPT_VOICES = 32


class KokoroSpeaker:
    """Speaks with a model of mlx-audio's `kokoro`.

    Args:
        folder: The model's folder, with its voices.
    """

    def __init__(self, model: Any, folder: Path) -> None:
        self._model = model
        self._folder = folder
        self._voices = list_voices(folder)
        self._pipelines: dict[str, Any] = {}

    @property
    def sample_rate(self) -> int:
        return int(self._model.sample_rate)

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        """Yield the whole piece; in several chunks if it has too many phonemes for the model."""
        language = prepared.language or "a"
        voice = prepared.voice or kokoro_voice(language, self._voices)
        pipeline = self._pipeline(language)
        if len(pipeline.voices) > _KEPT_VOICES:
            pipeline.voices.clear()
        for result in pipeline(piece, voice=voice, speed=prepared.speed, split_pattern=None):
            if result.audio is not None:
                yield Spoken(as_samples(result.audio), len(result.phonemes))

    def _pipeline(self, language: str) -> Any:
        from mlx_audio.tts.models.kokoro.pipeline import KokoroPipeline

        if language not in self._pipelines:
            try:
                pipeline = KokoroPipeline(
                    language, model=self._model, repo_id=str(self._folder), model_path=self._folder
                )
            except ImportError as error:
                cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
                raise ProblemError(library_missing(self._folder.name, cause.name or "misaki")) from error
            self._pipelines[language] = pipeline
        return self._pipelines[language]
