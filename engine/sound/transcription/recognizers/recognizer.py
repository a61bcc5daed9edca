"""What is asked of the code of a model that hears."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

import attrs

from greenroom.engine.fairness.slice_clock import SliceClock
from greenroom.engine.media.audio.windows import Window
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.messages.requests import TranscriptionInput


@attrs.frozen
class HeardWindow:
    """What was said in a window.

    Args:
        segments: With times from the recording's beginning.
        samples: How far the window was understood; what is behind is heard again.
        generated: Tokens that were computed.
        language: What is spoken, as ISO 639-1 has it; None if the model does not tell.
    """

    segments: tuple[Segment, ...]
    samples: int
    generated: int
    language: str | None


class Listener(Protocol):
    """Hears one recording, window by window; remembers what was said."""

    @property
    def memory(self) -> object:
        """What another listener needs to go on; nothing of the model."""

    def hear(self, window: Window, clock: SliceClock) -> Generator[None, None, HeardWindow]:
        """Write down a window, yielding whenever others may compute."""


class Recognizer(Protocol):
    """A loaded model that hears, confined to one thread.

    Attributes:
        rate: Samples a second that it hears.
        window_seconds: What it hears at once, at most.
    """

    rate: int
    window_seconds: float

    def working_bytes(self, asked: TranscriptionInput) -> int:
        """Return about how much memory a window takes while it is computed."""

    def listen(self, asked: TranscriptionInput, memory: object = None) -> Listener:
        """Begin a recording, or go on with it.

        Args:
            memory: Of the listener that has heard its windows so far, with another engine of the model.
        """
