"""The engine of a loaded speech model and its requests, all on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from greenroom.engine.catalog.files.load_failures import failure_reason
from greenroom.engine.catalog.files.missing_packages import library_missing, missing_module
from greenroom.engine.loading.offline import FetchRefusedError, offline
from greenroom.engine.memory.share import Share
from greenroom.engine.sound.sound_engine import SoundEngine
from greenroom.engine.sound.speech.preparing.prepared_speech import PreparedSpeech
from greenroom.engine.sound.speech.speakers.speaker import Speaker
from greenroom.engine.sound.speech.utterance import NotFiniteError, Utterance
from greenroom.schemas.events.events import InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, load_failed, model_broken

log = get_logger(__name__)


class SpeechEngine(SoundEngine[Speaker, Utterance]):
    """An engine whose step computes part of one piece of text.

    Models may keep their decoder's state on the model object, so one piece is in progress at a time.

    Args:
        speaker: The loaded model.
        folder: The model's folder, for errors.
        share: The model's share of the memory account, charged with the weights.
        transient: Memory that speaking takes in bytes, without the weights.
        clock: Clock in seconds, of any origin.
        on_close: Callback that frees memory which the library keeps for the model.
    """

    piece = "Speaking"

    def __init__(
        self,
        speaker: Speaker,
        folder: Path,
        share: Share,
        transient: int,
        clock: Callable[[], float] = time.perf_counter,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(speaker, share, 1, self._expected_seconds, clock)
        self._sample_rate = speaker.sample_rate
        self._folder = folder
        self._transient = transient
        self._on_close = on_close
        self._letters, self._seconds = 0, 0.0

    def submit(self, request: InferenceRequest, prepared: PreparedSpeech) -> None:
        """Add a request; `step` speaks it in its turn."""
        self.resume(Utterance(request, prepared, self._sample_rate, self._clock))

    def _release_model(self) -> None:
        super()._release_model()
        self._on_close()

    def _piece_bytes(self, request: Utterance) -> int:
        return self._transient

    def _compute(self, model: Speaker, request: Utterance) -> list[InferenceEvent]:
        self._letters += 0 if request.in_piece else request.next_letters
        with offline():
            return request.advance(model)

    def _cost(self, seconds: float) -> float:
        self._seconds += seconds
        return seconds

    def _expected_seconds(self, utterance: Utterance) -> float:
        """Return the expected duration of a request's next piece, from those of earlier pieces."""
        return utterance.next_letters * self._seconds / max(1, self._letters)

    def _problem_of(self, error: Exception, request: Utterance) -> Problem:
        if isinstance(error, ProblemError):
            return error.problem
        if isinstance(error, NotFiniteError):
            return model_broken("this text", "input")
        if isinstance(error, FetchRefusedError):
            return load_failed(self._folder.name, str(error))
        log.exception("request failed", request_id=request.request_id, step="speech")
        if module := missing_module(error):  # Some models' voice files need a further library.
            return library_missing(self._folder.name, module)
        reason = failure_reason(error, self._folder)
        if isinstance(error, ValueError):  # Libraries raise it for missing or wrong arguments.
            return Problem(
                400, "invalid_value", f"'{self._folder.name}' cannot speak this: {reason}", "input"
            )
        return Problem(500, "internal_error", "The speech of this text failed; see the server's log.")
