"""One text that is being spoken, piece by piece."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.sound.speech.chunk_joiner import ChunkJoiner
from greenroom.engine.sound.speech.playback_buffer import PlaybackBuffer
from greenroom.engine.sound.speech.preparing.prepared_speech import PreparedSpeech, Samples
from greenroom.engine.sound.speech.speakers.speaker import Speaker, Spoken
from greenroom.engine.sound.speech.tempo import TempoFilter
from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    PromptProgress,
    Timing,
    Usage,
)
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError


class Utterance:
    """The speech of one request, computed by calls of `advance`.

    Args:
        rate: Sample rate in Hz.
        clock: Clock in seconds, of any origin, for time slices and playback.

    Attributes:
        in_piece: True if a piece is started and not complete: the model may hold its state. Between
            pieces it holds none, and another engine of the model may continue.
    """

    def __init__(
        self,
        request: InferenceRequest,
        prepared: PreparedSpeech,
        rate: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.request_id, self.client = request.id, request.client
        self.in_piece = False
        self._prepared = prepared
        self._rate = rate
        self._pieces = deque(prepared.pieces)
        self._letters = sum(map(len, prepared.pieces))
        self._chunks: Iterator[Spoken] | None = None
        self._joiner = ChunkJoiner(rate)
        self._tempo: TempoFilter | None = None
        self._held: list[Samples] = []
        self._lead = PlaybackBuffer(clock)
        self._samples = self._prompt_tokens = self._tokens = 0
        self._clock = TimeBudget(clock)
        self._submitted = time.monotonic()
        self._began: float | None = None

    @property
    def next_letters(self) -> int:
        """Number of characters in the next piece."""
        return len(self._pieces[0]) if self._pieces else 0

    @property
    def is_begun(self) -> bool:
        return self._began is not None

    def advance(self, speaker: Speaker) -> list[InferenceEvent]:
        """Compute for a time slice, or until the first audio, within one piece; return the events.

        Audio waits while the client's playback buffer is full, but not at a piece's end. The last event at
        the request's end is Finished.

        Raises:
            NotFiniteError: The model computed NaN or infinity.
            ProblemError: The model cannot speak this piece, or the text contains nothing to speak.
        """
        self._compute(speaker)
        if self.in_piece and not self._lead.is_due:
            return []
        held, self._held = self._held, []
        chunk = self._audio_chunk(np.concatenate(held))
        events: list[InferenceEvent] = [] if chunk is None else [chunk]
        if self.in_piece:
            return events
        if self._pieces:
            # Progress before the first audio would start the response: an error could not set its status.
            return [*events, self._progress()] if self._samples else events
        if not self._samples:
            detail = "The model found nothing in `input` that it could speak."
            raise ProblemError(Problem(400, "invalid_value", detail, "input"))
        return [*events, self.finished("stop")]

    def finished(self, reason: FinishReason) -> Finished:
        now = time.monotonic()
        began = now if self._began is None else self._began
        usage = Usage(self._prompt_tokens, self._tokens, spoken=self._samples / self._rate)
        return Finished(reason, usage, Timing(began - self._submitted, 0.0, now - began))

    def close(self) -> None:
        """Stop speaking, even within a piece."""
        self._pieces.clear()
        self._end_piece()

    def _compute(self, speaker: Speaker) -> None:
        if self._began is None:
            self._began = time.monotonic()
            if self._prepared.tempo != 1:
                self._tempo = TempoFilter(self._rate, self._prepared.tempo)
        self._clock.begin()
        if self._chunks is None:
            self._chunks = iter(speaker.speak(self._pieces.popleft(), self._prepared))
            self.in_piece = True
        while self.in_piece:
            spoken = next(self._chunks, None)
            if spoken is None:
                self._held.append(self._joiner.end_piece(last=not self._pieces))
                self._end_piece()
            else:
                self._count(spoken)
                self._held.append(self._joiner.push(spoken.samples))
            first_sound = not self._samples and len(self._held[-1]) > 0
            if first_sound or self._clock.is_over:
                break

    def _progress(self) -> PromptProgress:
        """Return the progress through the text, in characters."""
        left = sum(map(len, self._pieces))
        began = self._submitted if self._began is None else self._began
        return PromptProgress(self._letters - left, self._letters, seconds=time.monotonic() - began)

    def _end_piece(self) -> None:
        chunks, self._chunks = self._chunks, None
        self.in_piece = False
        close = getattr(chunks, "close", None)  # Closing a generator lets the library restore its state.
        if close is not None:
            close()

    def _count(self, spoken: Spoken) -> None:
        self._prompt_tokens += spoken.prompt_tokens
        self._tokens += spoken.tokens
        if not np.isfinite(spoken.samples).all():
            raise NotFiniteError

    def _audio_chunk(self, samples: Samples) -> AudioChunk | None:
        if self._tempo is not None:
            samples = self._tempo.push(samples)
            if not self._pieces and not self.in_piece:
                samples = np.concatenate([samples, self._tempo.finish()])
        if not len(samples):
            return None
        self._samples += len(samples)
        self._lead.give(len(samples) / self._rate)
        integers = np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2")
        return AudioChunk(integers.tobytes(), self._rate)


class NotFiniteError(Exception):
    """Raised for audio with NaN or infinity: the weights are broken, or their precision is too low."""
