"""The engine's interface to a loaded transcription model, and models that read a window in one pass."""

from __future__ import annotations

import inspect
import math
from collections.abc import Generator, Mapping
from typing import Any, Protocol

import attrs
import mlx.core as mx

from greenroom.engine.catalog.load_failures import failure_reason
from greenroom.engine.loading.libraries import FetchRefusedError, offline
from greenroom.engine.media.recording_windows import Window
from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.sound.transcription.transcription_adapter import (
    MOST_TOKENS,
    SINGLE_PASS,
    SinglePassTraits,
)
from greenroom.schemas.events.result_events import Segment
from greenroom.schemas.messages.requests import TranscriptionInput
from greenroom.schemas.problems import Problem, ProblemError, invalid


@attrs.frozen
class WindowResult:
    """The transcript of a window.

    Args:
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
        """Start or continue a recording. `memory`: state of the session that transcribed its windows so far,
        in another engine of the model.
        """


_WORKING_BYTES = 512 * 1024 * 1024
"""Estimated memory of a window in bytes; the real amount depends on the architecture."""
_WINDOW_SECONDS = 20.0
"""Window length in seconds; shorter than Whisper's, since a window blocks all other requests."""


class SinglePassRecognizer:
    """Transcribes with a model of mlx-audio through its own `generate`. `model`: mlx-audio's model, with its
    weights in memory.
    """

    window_seconds = _WINDOW_SECONDS

    def __init__(self, model: Any, architecture: str) -> None:
        self.rate = int(getattr(model, "sample_rate", None) or 16_000)
        self._model = model
        self._traits = SINGLE_PASS[architecture]
        self._takes = inspect.signature(model.generate).parameters

    def working_bytes(self, asked: TranscriptionInput) -> int:
        return _WORKING_BYTES

    def listen(self, asked: TranscriptionInput, memory: object = None) -> SinglePassSession:
        """Start or continue a recording; windows share no state."""
        return SinglePassSession(self._model, self._traits, self._options(asked), asked.language, self.rate)

    def _options(self, asked: TranscriptionInput) -> dict[str, Any]:
        traits = self._traits
        options: dict[str, Any] = {}
        if asked.language is not None or traits.says_none:
            options |= dict.fromkeys(traits.language, spoken_language(asked.language, traits))
        if traits.bounded:
            options["max_tokens"] = MOST_TOKENS
        if asked.temperature is not None and "temperature" in self._takes:
            options["temperature"] = asked.temperature
        return options


def spoken_language(asked: str | None, traits: SinglePassTraits) -> str | None:
    """Return a language in the form an architecture takes; an unknown one is returned as its code."""
    if asked is None:
        return None
    from mlx_audio.stt.models.whisper import tokenizer

    codes: Mapping[str, str] = tokenizer.TO_LANGUAGE_CODE
    names: Mapping[str, str] = tokenizer.LANGUAGES
    code = codes.get(asked, asked.partition("-")[0])
    return names[code].title() if traits.form == "name" and code in names else code


class SinglePassSession:
    """Transcribes one recording; each window independently."""

    memory = None

    def __init__(
        self, model: Any, traits: SinglePassTraits, options: dict[str, Any], language: str | None, rate: int
    ) -> None:
        self._model = model
        self._traits = traits
        self._options = options
        self._language = language
        self._rate = rate

    def hear(self, window: Window, clock: TimeBudget) -> Generator[None, None, WindowResult]:
        """Transcribe a window. Raises ProblemError (400): the model's code rejects the language or the audio;
        503: it needs files that are missing.
        """
        yield
        try:
            with offline():
                answer = self._model.generate(mx.array(window.samples), **self._options)
        except FetchRefusedError as error:
            raise ProblemError(Problem(503, "load_failed", f"The model cannot hear: {error}.")) from error
        except ValueError as error:  # The library raises it for wrong arguments.
            named = "language" if self._language is not None else "file"
            raise invalid(f"The model's own code refuses this: {failure_reason(error)}", named) from error
        tokens = getattr(answer, "generation_tokens", 0)
        generated = int(tokens) if isinstance(tokens, int | float) and math.isfinite(tokens) else 0
        segments = tuple(_segments(answer, self._traits, window, self._rate))
        return WindowResult(segments, len(window.samples), generated, self._language)


def _segments(
    answer: Any, traits: SinglePassTraits, window: Window, rate: int
) -> Generator[Segment, None, None]:
    """Yield a library's answer as segments: its timed parts if it has any, or else one for the whole text."""
    start, length = window.start / rate, len(window.samples) / rate
    parts = [part for part in getattr(answer, "segments", None) or () if isinstance(part, Mapping)]
    said = [part for part in parts if str(part.get("text", "")).strip()] if traits.parts else []
    for part in said:
        begin, end = (_within(part.get(name), length) for name in ("start", "end"))
        words = str(part["text"]).strip().removeprefix(f"[{part.get('speaker_id')}] ")
        yield Segment(f" {words}", start + begin, start + max(begin, end))
    text = str(getattr(answer, "text", answer) or "").strip()
    if not said and text:
        yield Segment(f" {text}", start, start + length)


def _within(time: object, length: float) -> float:
    """Return a model's time in seconds, clamped to its window."""
    try:
        seconds = float(str(time))
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), length) if math.isfinite(seconds) else 0.0
