"""The engine's interface to a loaded transcription model."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

import attrs

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.media.audio.windows import Window
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.messages.requests import TranscriptionInput


@attrs.frozen
class WindowResult:
    """The transcript of a window.

    Args:
        segments: Segments, with times from the recording's beginning.
        samples: Number of samples transcribed; the rest is transcribed again in the next window.
        generated: Number of tokens generated.
        language: Spoken language as ISO 639-1 code; None if the model does not detect it.
    """

    segments: tuple[Segment, ...]
    samples: int
    generated: int
    language: str | None


class DecodingSession(Protocol):
    """A decoding session of one recording, window by window, with the previous text as state."""

    @property
    def memory(self) -> object:
        """State that another session needs to continue; independent of the model object."""

    def hear(self, window: Window, clock: TimeBudget) -> Generator[None, None, WindowResult]:
        """Transcribe a window, yielding between steps so that other requests can compute."""


class Recognizer(Protocol):
    """A loaded transcription model, confined to one thread.

    Attributes:
        rate: Sample rate of its input in Hz.
        window_seconds: Longest window in seconds.
    """

    rate: int
    window_seconds: float

    def working_bytes(self, asked: TranscriptionInput) -> int:
        """Return the approximate memory of a window's computation in bytes."""

    def listen(self, asked: TranscriptionInput, memory: object = None) -> DecodingSession:
        """Start or continue a recording.

        Args:
            memory: State of the session that transcribed its windows so far, in another engine of the model.
        """
