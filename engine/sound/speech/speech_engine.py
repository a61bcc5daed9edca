"""The engine of a loaded speech model and its requests, all on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from greenroom.engine.catalog.files.load_failures import failure_reason
from greenroom.engine.catalog.files.missing_packages import library_missing, missing_module
from greenroom.engine.device.device_errors import check_device, raise_unless_own, synchronize_streams
from greenroom.engine.fairness.fair_turns import FairTurns
from greenroom.engine.loading.offline import FetchRefusedError, offline
from greenroom.engine.memory.account import Share
from greenroom.engine.memory.cacheless_engine import CachelessEngine
from greenroom.engine.sound.speech.preparing.prepared_speech import PreparedSpeech
from greenroom.engine.sound.speech.speakers.speaker import Speaker
from greenroom.engine.sound.speech.utterance import NotFiniteError, Utterance
from greenroom.schemas.events.events import Failed, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, load_failed, model_broken

Events = list[tuple[str, InferenceEvent]]

log = get_logger(__name__)

_WAIT_SECONDS = 0.05
"""Time limit in seconds per step to wait for other models to release memory."""


class SpeechEngine(CachelessEngine):
    """An engine whose step computes part of one piece of text; a turn ends with its piece.

    Models may keep their decoder's state on the model object, so a started piece goes on before any other.
    Clients get equal shares of the time.

    Args:
        speaker: The loaded model.
        folder: The model's folder, for errors.
        share: The model's share of the memory account, charged with the weights.
        transient: Memory that speaking takes in bytes, without the weights.
        clock: Clock in seconds, of any origin.
        on_close: Callback that frees memory which the library keeps for the model.
    """

    def __init__(
        self,
        speaker: Speaker,
        folder: Path,
        share: Share,
        transient: int,
        clock: Callable[[], float] = time.perf_counter,
        on_close: Callable[[], object] = lambda: None,
    ) -> None:
        self._speaker: Speaker | None = speaker
        self._folder = folder
        self._share = share
        self._transient = transient
        self._clock = clock
        self._on_close = on_close
        self._turns: FairTurns[Utterance] = FairTurns(self._expected_seconds)
        self._turn_seconds = 0.0
        self._letters, self._seconds = 0, 0.0
        self._begun: Utterance | None = None
        self._events: Events = []

    @property
    def has_work(self) -> bool:
        """True if `step` has something to compute or report."""
        return bool(self._events or len(self._turns))

    def submit(self, request: InferenceRequest, prepared: PreparedSpeech) -> None:
        """Add a request; `step` speaks it in its turn."""
        assert self._speaker is not None
        self.resume(Utterance(request, prepared, self._speaker.sample_rate, self._clock))

    def suspend(self) -> Mapping[str, Utterance] | None:
        """Remove and return all requests with their remaining pieces; None within a piece."""
        if self._begun is not None or self._events:
            return None
        check_device(idle=True)  # The next engine would not notice an error of this one's device.
        return {utterance.request_id: utterance for utterance in self._turns.clear()}

    def unbegun(self) -> Mapping[str, Utterance]:
        """Remove all requests; return those of which nothing was computed."""
        return {each.request_id: each for each in self._turns.clear() if not each.is_begun}

    def resume(self, utterance: Utterance) -> None:
        """Continue a request that another engine suspended."""
        self._turns.add(utterance.client, utterance)

    def cancel(self, request_id: str) -> None:
        """Cancel a request; the next step reports its usage."""
        for utterance in [turn for turn in self._turns if turn.request_id == request_id]:
            self._remove(utterance)
            self._events.append((request_id, utterance.finished("cancelled")))

    def step(self) -> Events:
        """Compute part of the request whose turn it is; return the events."""
        if len(self._turns) and self._reserve():
            self._speak(self._begun or next(self._turns.in_turn()))
        if not len(self._turns):
            self._free()
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Drop the weights.

        Raises:
            DeviceError: The device's last work has failed; everything is freed even so.
        """
        import mlx.core as mx

        for utterance in list(self._turns):
            self._remove(utterance)
        self._speaker = None
        self._on_close()
        self._share.close()
        synchronize_streams()
        mx.clear_cache()

    def _speak(self, utterance: Utterance) -> None:
        assert self._speaker is not None
        problem: Problem | None = None
        self._letters += 0 if utterance.within_piece else utterance.next_letters
        began = self._clock()
        try:
            with offline():
                chunk = utterance.advance(self._speaker)
            if utterance.complete:
                check_device(idle=True)
            if chunk is not None:
                self._events.append((utterance.request_id, chunk))
            if utterance.complete:
                problem = _nothing_said() if utterance.is_silent else None
        except Exception as error:  # The next piece starts fresh, so no other request is affected.
            raise_unless_own(error)
            problem = self._problem_of(error, utterance)
        self._turn_seconds += self._clock() - began
        self._begun = utterance
        if not utterance.within_piece:
            self._end_turn()
        if problem is not None:
            end = utterance.finished("stop")
            self._end(utterance, Failed(problem, end.usage, end.timing))
        elif utterance.complete:
            self._end(utterance, utterance.finished("stop"))
        elif not utterance.within_piece and not utterance.is_silent:
            # Progress before the first audio would start the response: an error could not set its status.
            self._events.append((utterance.request_id, utterance.progress))

    def _expected_seconds(self, utterance: Utterance) -> float:
        """Return the expected duration of a request's next piece, from those of earlier pieces."""
        return utterance.next_letters * self._seconds / max(1, self._letters)

    def _end(self, utterance: Utterance, event: InferenceEvent) -> None:
        self._remove(utterance)
        self._events.append((utterance.request_id, event))

    def _end_turn(self) -> None:
        """Charge a turn that is over; until then, newly added requests are ordered before it."""
        utterance, self._begun = self._begun, None
        if utterance is not None:
            self._turns.charge(utterance, self._turn_seconds)
        self._seconds += self._turn_seconds
        self._turn_seconds = 0.0

    def _remove(self, utterance: Utterance) -> None:
        if self._begun is utterance:
            self._end_turn()
        self._turns.remove(utterance)
        utterance.close()

    def _reserve(self) -> bool:
        """Charge the memory for speaking; if it can never be available, fail all requests."""
        share = self._share
        if share.running or share.charge_running(self._transient, new=True):
            return True
        if share.request_eviction(self._transient, _WAIT_SECONDS) or share.others_running():
            share.wait_for_change(_WAIT_SECONDS)
            return share.charge_running(self._transient, new=True)
        for utterance in list(self._turns):
            self._end(utterance, Failed(self._no_memory()))
        return False

    def _free(self) -> None:
        if self._share.running:
            import mlx.core as mx

            self._share.charge_running(0)
            mx.clear_cache()

    def _no_memory(self) -> Problem:
        needed, room = self._transient >> 20, (self._share.capacity() or 0) >> 20
        detail = f"Speaking takes {needed} MB beside the weights; {room} MB are left (setting memory_bytes)."
        return Problem(507, "insufficient_memory", detail)

    def _problem_of(self, error: Exception, utterance: Utterance) -> Problem:
        if isinstance(error, ProblemError):
            return error.problem
        if isinstance(error, NotFiniteError):
            return model_broken("this text", "input")
        if isinstance(error, FetchRefusedError):
            return load_failed(self._folder.name, str(error))
        log.exception("request failed", request_id=utterance.request_id, step="speech")
        if module := missing_module(error):  # Some models' voice files need a further library.
            return library_missing(self._folder.name, module)
        reason = failure_reason(error, self._folder)
        if isinstance(error, ValueError):  # Libraries raise it for missing or wrong arguments.
            return Problem(
                400, "invalid_value", f"'{self._folder.name}' cannot speak this: {reason}", "input"
            )
        return Problem(500, "internal_error", "The speech of this text failed; see the server's log.")


def _nothing_said() -> Problem:
    return Problem(400, "invalid_value", "The model found nothing in `input` that it could speak.", "input")
