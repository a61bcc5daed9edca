"""A speaker for any model of mlx-audio, through the common `generate` method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greenroom.engine.sound.speech.preparing.abilities import SpeechAbilities
from greenroom.engine.sound.speech.preparing.prepared_speech import REFERENCE_RATE, PreparedSpeech
from greenroom.engine.sound.speech.speakers.resample import resample
from greenroom.engine.sound.speech.speakers.speaker import Spoken, as_samples

_INTERVAL = 0.32
"""Seconds of audio per chunk, for models that stream."""


class AnySpeaker:
    """Speaks with a model, passing only the options that its `generate` takes."""

    def __init__(self, model: Any, abilities: SpeechAbilities) -> None:
        self._model = model
        self._abilities = abilities

    @property
    def sample_rate(self) -> int:
        return int(self._model.sample_rate)

    def speak(self, piece: str, prepared: PreparedSpeech) -> Iterator[Spoken]:
        for result in self._model.generate(text=piece, **self._arguments(prepared)):
            yield Spoken(as_samples(result.audio), 0 if result.segment_idx else int(result.token_count or 0))

    def _arguments(self, prepared: PreparedSpeech) -> dict[str, Any]:
        abilities = self._abilities
        arguments: dict[str, Any] = {}
        if prepared.voice is not None:
            arguments["voice"] = prepared.voice
        if abilities.own_speed:
            arguments["speed"] = prepared.speed
        if abilities.instructions and prepared.instructions:
            arguments[abilities.instructions] = prepared.instructions
        if abilities.language and prepared.language is not None:
            arguments[abilities.language] = prepared.language
        if prepared.reference is not None:
            import mlx.core as mx

            samples = resample(prepared.reference.samples, REFERENCE_RATE, self.sample_rate)
            arguments["ref_audio"] = mx.array(samples)
            if abilities.reads_reference and prepared.reference.text:
                arguments["ref_text"] = prepared.reference.text
        if abilities.streams:
            arguments |= {"stream": True, "streaming_interval": _INTERVAL}
        return arguments
