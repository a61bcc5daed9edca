"""The transcription engine: recordings take fair turns by steps of their windows, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.media.audio.reader import AHEAD_SECONDS
from greenroom.engine.memory.share import Share
from greenroom.engine.sound.sound_engine import SoundEngine
from greenroom.engine.sound.transcription.preparing.prepared_transcription import PreparedTranscription
from greenroom.engine.sound.transcription.recognizers.recognizer import Recognizer
from greenroom.engine.sound.transcription.running_transcription import RunningTranscription
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.messages.requests import InferenceRequest

_MAX_WINDOWS = 4
"""Limit of windows in progress at once.

A later recording waits until one of them ends, and unloading the model waits until all do. With a window for
each request, both would take many times as long.
"""
_UNCROWDED = 8
_LITTLE_AHEAD_SECONDS = 4.0
"""Seconds decoded ahead for each recording beyond the first few; a second takes 64 kB."""


class TranscriptionEngine(SoundEngine[Recognizer, RunningTranscription]):
    """An engine whose step reads from a recording, or computes part of one window.

    Clients get equal shares of the steps, and so do the recordings of one client: a long one does not block
    a short one.

    Args:
        recognizer: The loaded model.
        share: The model's share of the memory account.
        clock: Clock in seconds, of any origin.
    """

    piece = "A window of the recording"

    def __init__(
        self, recognizer: Recognizer, share: Share, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(recognizer, share, _MAX_WINDOWS, clock=clock)
        self._budget = TimeBudget(clock)

    def submit(self, request: InferenceRequest, prepared: PreparedTranscription) -> None:
        """Add a recording; its file is opened in its first turn."""
        assert self._model is not None, "submitted after close"
        ahead = AHEAD_SECONDS if len(self._queue) < _UNCROWDED else _LITTLE_AHEAD_SECONDS
        self.resume(RunningTranscription(request, prepared, self._model, ahead))

    def suspend(self) -> Mapping[str, RunningTranscription] | None:
        """Remove and return all recordings once their started windows are done; None until then."""
        suspended = super().suspend()
        for running in (suspended or {}).values():
            running.detach()
        return suspended

    def _piece_bytes(self, request: RunningTranscription) -> int:
        return request.working_bytes

    def _compute(self, model: Recognizer, request: RunningTranscription) -> list[InferenceEvent]:
        self._budget.is_alone = len(self._queue) == 1
        return request.advance(model, self._budget)
