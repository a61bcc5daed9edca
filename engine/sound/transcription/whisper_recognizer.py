"""Whisper as a recognizer: windows to segments, with the previous text as context."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import attrs
import mlx.core as mx

from greenroom.engine.media.recording_windows import Window
from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.sound.transcription.recognizers import WindowResult
from greenroom.engine.sound.transcription.whisper_decoding import (
    FRAME,
    RATE,
    DecodedWindow,
    WindowDecoder,
    make_vocabulary,
)
from greenroom.engine.sound.transcription.whisper_words import (
    SplitWindow,
    TimedTokens,
    find_words,
    misses_speech,
    split_window,
)
from greenroom.schemas.events.result_events import Segment, Word
from greenroom.schemas.messages.requests import TranscriptionInput

TEMPERATURES = (0.0, 0.4, 0.8)
"""Temperatures tried in order while a transcript is repetitive or unlikely.

OpenAI's code goes up to 1.0 by 0.2: six attempts at each window of a recording that no attempt can
transcribe.
"""
_MOST_COMPRESSION = 2.4
_LEAST_LOGPROB = -1.0
_MOST_NO_SPEECH = 0.6
_RESET_TEMPERATURE = 0.5  # Temperature above which a transcript is not used as context


class WhisperRecognizer:
    """Transcribes with a Whisper model of mlx-audio. `model`: mlx-audio's model, with its weights in memory.
    Raises ValueError: its tokenizer is missing or not Whisper's.
    """

    rate = RATE
    window_seconds = 30.0

    def __init__(self, model: Any) -> None:
        self.decoder = WindowDecoder(model, make_vocabulary(model))

    def working_bytes(self, asked: TranscriptionInput) -> int:
        dims = self.decoder.model.dims
        positions, item = dims.n_audio_ctx, self.decoder.model.dtype.size
        # One layer's attention scores, and their softmax in float32.
        encoding = dims.n_audio_head * positions**2 * (item + 4) + 8 * positions * dims.n_audio_state * item
        cache = 2 * dims.n_text_layer * (positions + dims.n_text_ctx) * dims.n_text_state * item
        crossed = dims.n_text_layer * dims.n_text_head * dims.n_text_ctx * positions * item
        return int(encoding + cache + (crossed if asked.word_timestamps else 0))

    def listen(self, asked: TranscriptionInput, memory: object = None) -> WhisperSession:
        """Start a recording, or continue one with its previous text as context."""
        session = WhisperSession(self.decoder, asked)
        if isinstance(memory, _Memory):
            session.memory = memory
        return session


@attrs.define
class _Memory:
    """State carried from window to window of a recording. `language`: spoken language; None until it is
    detected; `context`: tokens of the previous text, or of the prompt.
    """

    language: str | None
    context: list[int]
    last_text: str = ""


class WhisperSession:
    """A decoding session of one recording.

    Attributes:
        memory: State carried from window to window.
    """

    def __init__(self, decoder: WindowDecoder, asked: TranscriptionInput) -> None:
        self._decoder = decoder
        self._asked = asked
        context = decoder.vocabulary.encode(asked.prompt) if asked.prompt.strip() else []
        self.memory = _Memory(asked.language, context)

    def hear(self, window: Window, clock: TimeBudget) -> Generator[None, None, WindowResult]:
        decoder = self._decoder
        mel, frames = decoder.spectrogram(window.samples)
        if not frames:
            return WindowResult((), len(window.samples), 0, self.memory.language)
        features = yield from decoder.encode(mel, clock)
        if detects := self.memory.language is None:
            self.memory.language = (
                decoder.detect_language(features) if decoder.vocabulary.is_multilingual else "en"
            )
            yield
        generated = 0
        while True:
            decoded, computed = yield from self._decode(features, clock)
            generated += computed
            if decoded.no_speech_prob > _MOST_NO_SPEECH and decoded.avg_logprob <= _LEAST_LOGPROB:
                if detects:  # a language heard in noise
                    self.memory.language = None
                return WindowResult((), len(window.samples), generated, self.memory.language)
            split = split_window(decoded.tokens, decoder.vocabulary.first_timestamp, frames)
            if not self.memory.context or not misses_speech(split, decoder.vocabulary.end, frames):
                break
            # Where passages repeat, a model may write its context again, and leave out what it hears.
            self.memory.context = []
        words: list[tuple[Word, ...]] = [() for _ in split.segments]
        if self._asked.word_timestamps:
            words = yield from find_words(
                decoder, features, self._beginning(), self.memory.language, split.segments, frames, clock
            )
        segments = self._segments(window, decoded, split, words)
        self._remember(segments, decoded)
        if detects and not segments:
            self.memory.language = None
        understood = len(window.samples) if split.is_whole else split.frames * FRAME
        return WindowResult(tuple(segments), understood, generated, self.memory.language)

    def _beginning(self) -> tuple[int, ...]:
        return self._decoder.vocabulary.beginning(self.memory.language or "en", self._asked.task)

    def _decode(
        self, features: mx.array, clock: TimeBudget
    ) -> Generator[None, None, tuple[DecodedWindow, int]]:
        """Decode, with fallback to higher temperatures; return the last attempt and the total of tokens."""
        given = self._asked.temperature
        generated = 0
        for temperature in TEMPERATURES if given is None else (given,):
            decoded = yield from self._decoder.decode(
                features, self.memory.context, self._beginning(), temperature, clock
            )
            generated += decoded.generated
            if not _has_failed(decoded):
                break
        return decoded, generated

    def _segments(
        self, window: Window, decoded: DecodedWindow, split: SplitWindow, words: list[tuple[Word, ...]]
    ) -> list[Segment]:
        offset = window.start / RATE
        segments = []
        for timed, own in zip(split.segments, words, strict=True):
            text = self._decoder.vocabulary.decode(timed.tokens)
            if timed.start == timed.end or not text.strip():
                continue
            start, end = _times(timed, own)
            segments.append(
                Segment(
                    text,
                    round(offset + start, 3),
                    round(offset + end, 3),
                    timed.tokens,
                    tuple(_later(word, offset) for word in own),
                    decoded.avg_logprob,
                    decoded.compression_ratio,
                    decoded.no_speech_prob,
                    decoded.temperature,
                    window.start // FRAME,
                )
            )
        return segments

    def _remember(self, segments: list[Segment], decoded: DecodedWindow) -> None:
        """Keep the window's text as context, unless it is poor or repeats the previous one."""
        text = "".join(segment.text for segment in segments)
        if decoded.temperature > _RESET_TEMPERATURE or not decoded.is_sound or text == self.memory.last_text:
            self.memory.context = []
        else:
            self.memory.context += [token for segment in segments for token in segment.tokens]
            del self.memory.context[: -self._decoder.max_tokens]
        self.memory.last_text = text


def _has_failed(decoded: DecodedWindow) -> bool:
    """Return whether a transcript is repetitive or unlikely, and the window not just silent."""
    unlikely = decoded.avg_logprob < _LEAST_LOGPROB
    silent = unlikely and decoded.no_speech_prob > _MOST_NO_SPEECH
    return not silent and (unlikely or decoded.compression_ratio > _MOST_COMPRESSION)


def _later(word: Word, seconds: float) -> Word:
    return attrs.evolve(word, start=round(seconds + word.start, 3), end=round(seconds + word.end, 3))


def _times(timed: TimedTokens, words: tuple[Word, ...]) -> tuple[float, float]:
    """Return a segment's times: those of its words if it has any, since they are more precise."""
    if not words or words[-1].end <= words[0].start:
        return timed.start, timed.end
    return words[0].start, words[-1].end
