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
from greenroom.schemas.events.events import Finished, FinishReason, PromptProgress, Timing, Usage
from greenroom.schemas.events.result_events import AudioChunk
from greenroom.schemas.messages.requests import InferenceRequest


class Utterance:
    """The speech of one request, computed by calls of `advance`.

    Args:
        rate: Sample rate in Hz.
        clock: Clock in seconds, of any origin, for time slices and playback.

    Attributes:
        within_piece: True if a piece is started and not complete: the model may hold its state. Between
            pieces it holds none, and another engine of the model may continue.
        complete: True if all pieces are spoken.
    """

    def __init__(
        self,
        request: InferenceRequest,
        prepared: PreparedSpeech,
        rate: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.request_id, self.client = request.id, request.client
        self.within_piece = False
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
    def complete(self) -> bool:
        """True if all pieces are spoken."""
        return not self._pieces and not self.within_piece

    @property
    def is_silent(self) -> bool:
        """True if no audio was produced."""
        return self._samples == 0

    @property
    def next_letters(self) -> int:
        """Number of characters in the next piece."""
        return len(self._pieces[0]) if self._pieces else 0

    @property
    def is_begun(self) -> bool:
        """True if computation has started."""
        return self._began is not None

    def advance(self, speaker: Speaker) -> AudioChunk | None:
        """Compute for a time slice, or until the first audio, within one piece.

        Returns:
            Audio to send; None while the client's playback buffer is full, except at a piece's end.

        Raises:
            NotFiniteError: The model computed NaN or infinity.
            ProblemError: The model cannot speak this piece.
        """
        if self._began is None:
            self._began = time.monotonic()
            if self._prepared.tempo != 1:
                self._tempo = TempoFilter(self._rate, self._prepared.tempo)
        self._clock.begin()
        if self._chunks is None:
            self._chunks = iter(speaker.speak(self._pieces.popleft(), self._prepared))
            self.within_piece = True
        while self.within_piece:
            spoken = next(self._chunks, None)
            if spoken is None:
                self._held.append(self._joiner.end_piece(last=not self._pieces))
                self._end_piece()
            else:
                self._count(spoken)
                self._held.append(self._joiner.push(spoken.samples))
            first_sound = self.is_silent and len(self._held[-1]) > 0
            if first_sound or self._clock.is_over:
                break
        if self.within_piece and not self._lead.is_due:
            return None
        held, self._held = self._held, []
        return self._audio_chunk(np.concatenate(held))

    @property
    def progress(self) -> PromptProgress:
        """Progress through the text, in characters."""
        left = sum(map(len, self._pieces))
        began = self._submitted if self._began is None else self._began
        return PromptProgress(self._letters - left, self._letters, seconds=time.monotonic() - began)

    def finished(self, reason: FinishReason) -> Finished:
        """Return the final event, with the request's usage and timing."""
        now = time.monotonic()
        began = now if self._began is None else self._began
        usage = Usage(self._prompt_tokens, self._tokens, spoken=self._samples / self._rate)
        return Finished(reason, usage, Timing(began - self._submitted, 0.0, now - began))

    def close(self) -> None:
        """Stop speaking, even within a piece."""
        self._pieces.clear()
        self._end_piece()

    def _end_piece(self) -> None:
        chunks, self._chunks = self._chunks, None
        self.within_piece = False
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
            if self.complete:
                samples = np.concatenate([samples, self._tempo.finish()])
        if not len(samples):
            return None
        self._samples += len(samples)
        self._lead.give(len(samples) / self._rate)
        integers = np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2")
        return AudioChunk(integers.tobytes(), self._rate)


class NotFiniteError(Exception):
    """Raised for audio with NaN or infinity: the weights are broken, or their precision is too low."""
