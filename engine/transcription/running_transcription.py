"""One recording that is being transcribed: reading, hearing and telling, a slice at a time."""

from __future__ import annotations

import time
from collections.abc import Generator

import attrs

from greenroom.engine.audio.reader import RecordingReader
from greenroom.engine.audio.windows import WindowBuffer
from greenroom.engine.fairness.slice_clock import SliceClock
from greenroom.engine.transcription.preparing.prepared_transcription import PreparedTranscription
from greenroom.engine.transcription.recognizers.recognizer import HeardWindow, Recognizer
from greenroom.schemas.events import Finished, InferenceEvent, PromptProgress, Timing, Usage
from greenroom.schemas.requests import InferenceRequest
from greenroom.schemas.result_events import Recording

Slices = Generator[list[InferenceEvent], None, None]


class RunningTranscription:
    """A recording on its way through a recognizer.

    Attributes:
        in_window: A window is being computed.
        holds_memory: What that takes has been charged.
        working_bytes: What it takes.
    """

    def __init__(
        self,
        request: InferenceRequest,
        prepared: PreparedTranscription,
        recognizer: Recognizer,
        reader: RecordingReader,
        clock: SliceClock,
    ) -> None:
        self.id = request.id
        self.working_bytes = recognizer.working_bytes(prepared.asked)
        self.in_window = self.holds_memory = False
        self._facts = prepared.facts
        self._listener = recognizer.listen(prepared.asked)
        self._rate = recognizer.rate
        self._buffer = WindowBuffer(recognizer.rate, recognizer.window_seconds)
        self._reader = reader
        self._clock = clock
        self._language = prepared.asked.language
        self._generated = 0
        self._submitted = self._went_on = time.perf_counter()
        self._began: float | None = None
        self._slices = self._run()

    @property
    def usage(self) -> Usage:
        """What it has used so far."""
        return Usage(generated=self._generated, heard=round(self._buffer.position / self._rate, 3))

    def timing(self) -> Timing:
        """Return the seconds that it waited and computed."""
        now = time.perf_counter()
        began = now if self._began is None else self._began
        return Timing(queued=began - self._submitted, decode=now - began)

    def wait_for_memory(self) -> float:
        """Return the seconds that it has waited for memory, since it went on last."""
        return time.perf_counter() - self._went_on

    def advance(self) -> list[InferenceEvent]:
        """Compute one slice, and return its events; the last one is Finished.

        Raises:
            ProblemError: The recording cannot be decoded.
        """
        if self._began is None:
            self._began = time.perf_counter()
        self._clock.begin()
        events = next(self._slices)
        self._went_on = time.perf_counter()
        return events

    def close(self) -> None:
        """Let go of the file and of what is computed."""
        self._slices.close()
        self._reader.close()
        self.in_window = False

    def _run(self) -> Slices:
        yield [self._recording()]
        told = self._language
        while (yield from self._fill()):
            window = self._buffer.next_window()
            if window is not None:
                self.in_window = True
                hearing = self._listener.hear(window, self._clock)
                heard = yield from _slices_of(hearing)
                self._buffer.advance(min(max(heard.samples, 1), len(window.samples)))
                self.in_window = False
                yield self._tell(heard)
            if self._language != told:
                told = self._language
                yield [self._recording()]
        finished = Finished("stop", self.usage, self.timing())
        yield [attrs.evolve(self._recording(), duration=self.usage.heard), finished]

    def _fill(self) -> Generator[list[InferenceEvent], None, bool]:
        """Read until a window can be cut; return whether there is one left."""
        buffer = self._buffer
        while not buffer.is_ready:
            block = self._reader.read(self._clock.patience)
            if block is None:
                buffer.end()
            elif len(block):
                buffer.add(block)
            if block is not None and (not len(block) or self._clock.is_over):
                yield [self._progress()]
        return buffer.heard > buffer.position

    def _tell(self, heard: HeardWindow) -> list[InferenceEvent]:
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
    hearing: Generator[None, None, HeardWindow],
) -> Generator[list[InferenceEvent], None, HeardWindow]:
    while True:
        try:
            next(hearing)
        except StopIteration as end:
            result: HeardWindow = end.value
            return result
        yield []
