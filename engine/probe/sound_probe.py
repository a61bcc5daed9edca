"""The probe of models that speak or transcribe."""

from __future__ import annotations

import math
import struct
import wave
from pathlib import Path

import attrs

from greenroom.engine.probe.encoder_probe import unusable
from greenroom.engine.probe.questions import Answer, Question
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import SpeechInput, TranscriptionInput
from greenroom.schemas.models.capabilities import ProbedCapabilities
from greenroom.schemas.problems import ProblemError

_RATE = 16_000
_SECONDS = 1


@attrs.frozen
class SpeechProbe:
    """The question to a model that speaks: one word.

    Args:
        known: Record to return if the probe finds no fault.
    """

    known: ProbedCapabilities

    @property
    def questions(self) -> tuple[Question, ...]:
        """One question for the word `Hello`."""
        return (Question(SpeechInput("Hello.")),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        """Return the record.

        Raises:
            ProblemError: The model remained silent.
        """
        if not any(event.samples for event in answers[0].events if isinstance(event, AudioChunk)):
            raise ProblemError(unusable(self.known.model_id, "it generated no sound"))
        return self.known


@attrs.frozen
class TranscriptionProbe:
    """The question to a model that transcribes: a second of a changing tone, as long as a word.

    Whatever the model hears in it is right, since nobody speaks.

    Args:
        known: Record to return if the probe finds no fault.
        recording: File to transcribe, from `write_recording`.
    """

    known: ProbedCapabilities
    recording: Path

    @property
    def questions(self) -> tuple[Question, ...]:
        return (Question(TranscriptionInput(str(self.recording))),)

    def judge(self, answers: tuple[Answer, ...]) -> ProbedCapabilities:
        return self.known


def write_recording(path: Path) -> None:
    """Write the recording of a probe, a WAV file."""
    steps = [200 + 400 * math.sin(2 * math.pi * 3 * n / _RATE) for n in range(_RATE * _SECONDS)]
    tone = [int(8_000 * math.sin(2 * math.pi * step * n / _RATE)) for n, step in enumerate(steps)]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes(struct.pack(f"<{len(tone)}h", *tone))
