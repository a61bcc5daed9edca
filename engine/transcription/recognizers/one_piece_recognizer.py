"""Models of mlx-audio that hear a window through their own `generate`, in one piece."""

from __future__ import annotations

import inspect
import math
from collections.abc import Generator
from typing import Any

import mlx.core as mx

from greenroom.engine.audio.windows import Window
from greenroom.engine.fairness.slice_clock import SliceClock
from greenroom.engine.loading.offline import offline
from greenroom.engine.transcription.recognizers.recognizer import HeardWindow
from greenroom.schemas.requests import TranscriptionInput
from greenroom.schemas.result_events import Segment

_WORKING_BYTES = 512 * 1024 * 1024
"""Of a window; what it is depends on the architecture."""
_WINDOW_SECONDS = 20.0
"""Shorter than Whisper's: nobody else computes meanwhile."""


class OnePieceRecognizer:
    """Hears with a model of mlx-audio that has code of its own for all of it.

    Args:
        model: mlx-audio's, with its weights in memory.
    """

    window_seconds = _WINDOW_SECONDS

    def __init__(self, model: Any) -> None:
        self.rate = int(getattr(model, "sample_rate", None) or 16_000)
        self._model = model
        self._takes = inspect.signature(model.generate).parameters

    def working_bytes(self, asked: TranscriptionInput) -> int:
        """Return about how much memory a window takes while it is computed."""
        return _WORKING_BYTES

    def listen(self, asked: TranscriptionInput, memory: object = None) -> OnePieceListener:
        """Begin a recording, or go on with it: nothing is remembered of its windows."""
        wanted = {"language": asked.language, "temperature": asked.temperature}
        options = {name: value for name, value in wanted.items() if value is not None and name in self._takes}
        return OnePieceListener(self._model, options, asked.language, self.rate)


class OnePieceListener:
    """Hears one recording; each window for itself.

    Args:
        options: Of `generate`.
    """

    def __init__(self, model: Any, options: dict[str, Any], language: str | None, rate: int) -> None:
        self._model = model
        self._options = options
        self._language = language
        self._rate = rate

    @property
    def memory(self) -> None:
        """Nothing."""

    def hear(self, window: Window, clock: SliceClock) -> Generator[None, None, HeardWindow]:
        """Write down a window."""
        yield
        with offline():
            answer = self._model.generate(mx.array(window.samples), **self._options)
        text = str(getattr(answer, "text", answer) or "").strip()
        tokens = getattr(answer, "generation_tokens", 0)
        generated = int(tokens) if isinstance(tokens, int | float) and math.isfinite(tokens) else 0
        start, size = window.start / self._rate, len(window.samples)
        segments = (Segment(f" {text}", start, start + size / self._rate),) if text else ()
        return HeardWindow(segments, size, generated, self._language)
