"""One text that is being spoken, piece by piece."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

import av
import numpy as np
from av.error import BlockingIOError as NothingYet
from av.error import EOFError as Ended
from av.filter import Graph

from greenroom.engine.resources.fair_queue import TimeBudget
from greenroom.engine.sound.speech.speakers import Speaker, Spoken
from greenroom.engine.sound.speech.speech_adapter import PreparedSpeech, Samples
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


_SLOWEST = 0.5  # Lowest tempo one `atempo` filter supports; slower rates chain two
_BEHIND_SECONDS = 0.5
"""Seconds of silence appended at the end, so that the filter drops them instead of speech."""


class TempoFilter:
    """Converts speech to another tempo.

    Args:
        rate: Sample rate in Hz.
        tempo: Tempo factor; 2 is twice as fast.
    """

    def __init__(self, rate: int, tempo: float) -> None:
        self._rate = rate
        self._tempo = tempo
        self._position = self._heard = 0
        self._graph = Graph()
        source = self._graph.add_abuffer(sample_rate=rate, format="flt", layout="mono")
        stages = [tempo] if tempo >= _SLOWEST else [_SLOWEST, tempo / _SLOWEST]
        filters = [self._graph.add("atempo", f"{stage:.6f}") for stage in stages]
        self._graph.link_nodes(source, *filters, self._graph.add("abuffersink")).configure()

    def push(self, samples: Samples) -> Samples:
        if not len(samples):
            return samples
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="flt", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._position
        self._position += len(samples)
        self._graph.push(frame)
        return self._pull()

    def finish(self) -> Samples:
        """Return the rest, so that the total length is exact."""
        left = round(self._position / self._tempo) - self._heard
        if not self._position:
            return np.zeros(0, np.float32)
        behind = self.push(np.zeros(round(self._rate * self._tempo * _BEHIND_SECONDS), np.float32))
        self._graph.push(None)
        return np.concatenate([behind, self._pull()])[: max(0, left)]

    def _pull(self) -> Samples:
        pulled = np.concatenate([np.zeros(0, np.float32), *self._frames()])
        self._heard += len(pulled)
        return pulled

    def _frames(self) -> Iterator[Samples]:
        while True:
            try:
                frame = self._graph.pull()
            except (NothingYet, Ended):
                return
            assert isinstance(frame, av.AudioFrame)
            yield frame.to_ndarray().reshape(-1).astype(np.float32)


FADE_SECONDS = 0.005
"""Length of each fade in seconds. A cross-fade would shorten the speech; separate fades keep its length."""


class ChunkJoiner:
    """Joins pieces that arrive in chunks; start and end of the whole speech are not faded. `rate`: sample
    rate in Hz.
    """

    def __init__(self, rate: int) -> None:
        count = max(1, round(rate * FADE_SECONDS))
        self._rising: Samples = np.square(np.sin(np.linspace(0, np.pi / 2, count, dtype=np.float32)))
        self._held: Samples = np.zeros(0, np.float32)
        self._position: int | None = None

    def push(self, samples: Samples) -> Samples:
        """Return the samples that can be played now; the piece's last milliseconds are held back."""
        joined = np.concatenate([self._held, self._fade_in(samples)])
        kept = min(len(joined), len(self._rising))
        self._held = joined[len(joined) - kept :]
        return joined[: len(joined) - kept]

    def end_piece(self, last: bool) -> Samples:
        held, self._held = self._held, np.zeros(0, np.float32)
        if not last:
            held = held * self._rising[: len(held)][::-1]
            self._position = 0
        return held

    def _fade_in(self, samples: Samples) -> Samples:
        if self._position is None:
            return samples
        ramp = self._rising[self._position : self._position + len(samples)]
        self._position += len(ramp)
        if self._position >= len(self._rising):
            self._position = None
        return np.concatenate([samples[: len(ramp)] * ramp, samples[len(ramp) :]])


LONGEST_HOLD = 0.1
"""Longest time in seconds that samples are held back: those held at the end must still be encoded then."""
_HELD_OF_LEAD = 0.25


class PlaybackBuffer:
    """Decides when to send the next samples; every delivery takes the GIL from the model. `clock`: monotonic
    clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._last = 0.0
        self._given = 0.0

    @property
    def is_due(self) -> bool:
        """True if samples should be sent now: the first ones, and those that the playback will soon need."""
        if self._began is None:
            return True
        now = self._clock()
        lead = self._given - (now - self._began)
        return now - self._last >= min(LONGEST_HOLD, lead * _HELD_OF_LEAD)

    def give(self, seconds: float) -> None:
        """Record that `seconds` of audio were sent."""
        self._last = self._clock()
        if self._began is None:
            self._began = self._last
        self._given += seconds
