"""One recording that is being transcribed, in steps: reading, recognition and events."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path

import attrs

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.media.audio.reader import RecordingReader
from greenroom.engine.media.audio.windows import WindowBuffer
from greenroom.engine.sound.transcription.preparing.prepared_transcription import PreparedTranscription
from greenroom.engine.sound.transcription.recognizers.recognizer import (
    DecodingSession,
    Recognizer,
    WindowResult,
)
from greenroom.schemas.events.events import (
    Finished,
    FinishReason,
    InferenceEvent,
    PromptProgress,
    Timing,
    Usage,
)
from greenroom.schemas.events.result_events import Recording
from greenroom.schemas.messages.requests import InferenceRequest

Steps = Generator[list[InferenceEvent], None, None]


class RunningTranscription:
    """A recording's transcription; between two windows it can move to another recognizer.

    Args:
        ahead: Seconds of audio decoded ahead once it has started.

    Attributes:
        in_piece: True if a window is being computed.
        working_bytes: Memory of a window's computation in bytes.
    """

    def __init__(
        self,
        request: InferenceRequest,
        prepared: PreparedTranscription,
        recognizer: Recognizer,
        ahead: float,
    ) -> None:
        self.request_id, self.client = request.id, request.client
        self.working_bytes = recognizer.working_bytes(prepared.asked)
        self.in_piece = False
        self._asked, self._facts = prepared.asked, prepared.facts
        self._session: DecodingSession | None = None
        self._memory: object = None
        self._rate = recognizer.rate
        self._buffer = WindowBuffer(recognizer.rate, recognizer.window_seconds)
        self._ahead = ahead
        self._reader: RecordingReader | None = None
        self._language = prepared.asked.language
        self._told: tuple[str | None] | None = None
        self._generated = 0
        self._submitted = time.perf_counter()
        self._began: float | None = None
        self._steps: Steps | None = None

    def finished(self, reason: FinishReason) -> Finished:
        now = time.perf_counter()
        began = now if self._began is None else self._began
        timing = Timing(queued=began - self._submitted, decode=now - began)
        return Finished(reason, Usage(generated=self._generated, heard=self._heard), timing)

    @property
    def is_begun(self) -> bool:
        """True if reading has started."""
        return self._began is not None

    def advance(self, recognizer: Recognizer, clock: TimeBudget) -> list[InferenceEvent]:
        """Compute one step, and return its events; the last event is Finished.

        Raises:
            ProblemError: The recording cannot be decoded, or too many decoders hang.
        """
        if self._began is None:
            self._began = time.perf_counter()
        if self._reader is None:
            self._reader = RecordingReader(
                Path(self._asked.file), self._rate, ahead=self._ahead, client=self.client
            )
        if self._steps is None:
            self._session = recognizer.listen(self._asked, self._memory)
            self._steps = self._run(self._session, self._reader, clock)
        clock.begin()
        return next(self._steps)

    def detach(self) -> None:
        """Detach from the recognizer between two windows; another one can continue."""
        if self._steps is not None:
            self._steps.close()
        if self._session is not None:
            self._memory = self._session.memory
        self._steps = self._session = None
        self.in_piece = False

    def close(self) -> None:
        self.detach()
        if self._reader is not None:
            self._reader.close()

    def _run(self, session: DecodingSession, reader: RecordingReader, clock: TimeBudget) -> Steps:
        while True:
            if self._told != (self._language,):
                self._told = (self._language,)
                yield [self._recording()]
            if not (yield from self._fill(reader, clock)):
                break
            window = self._buffer.next_window()
            if window is not None:
                self.in_piece = True
                hearing = session.hear(window, clock)
                heard = yield from _slices_of(hearing)
                self._buffer.advance(min(max(heard.samples, 1), len(window.samples)))
                self.in_piece = False
                told = self._tell(heard)
                if self._buffer.is_over:
                    yield [*told, *self._end()]
                    return
                yield told
        yield self._end()

    def _fill(
        self, reader: RecordingReader, clock: TimeBudget
    ) -> Generator[list[InferenceEvent], None, bool]:
        """Read until a window can be cut; return whether any audio is left."""
        buffer = self._buffer
        while not buffer.is_ready:
            block = reader.read(clock.patience)
            if block is None:
                buffer.end()
            elif len(block):
                buffer.add(block)
            if block is not None and (not len(block) or clock.is_over):
                yield [self._progress()]
        return buffer.heard > buffer.position

    def _end(self) -> list[InferenceEvent]:
        return [attrs.evolve(self._recording(), duration=self._heard), self.finished("stop")]

    @property
    def _heard(self) -> float:
        """Seconds of audio that are transcribed."""
        return round(self._buffer.position / self._rate, 3)

    def _tell(self, heard: WindowResult) -> list[InferenceEvent]:
        self._generated += heard.generated
        self._language = heard.language
        return [*heard.segments, self._progress()]

    def _progress(self) -> PromptProgress:
        heard, total = self._buffer.position / self._rate, self._facts.duration
        seconds = 0.0 if self._began is None else time.perf_counter() - self._began
        return PromptProgress(int(heard), int(max(heard, total or 0)), seconds=seconds)

    def _recording(self) -> Recording:
        return Recording(self._facts.duration or 0.0, self._language)


def _slices_of(
    hearing: Generator[None, None, WindowResult],
) -> Generator[list[InferenceEvent], None, WindowResult]:
    while True:
        try:
            next(hearing)
        except StopIteration as end:
            result: WindowResult = end.value
            return result
        yield []
