"""The transcription engine: recordings take fair turns by steps of their windows, on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from greenroom.engine.device.device_errors import check_device, raise_unless_own
from greenroom.engine.fairness.fair_turns import FairTurns
from greenroom.engine.fairness.time_budget import TimeBudget
from greenroom.engine.media.audio.reader import AHEAD_SECONDS
from greenroom.engine.memory.account import Share
from greenroom.engine.memory.cacheless_engine import CachelessEngine
from greenroom.engine.sound.transcription.preparing.prepared_transcription import PreparedTranscription
from greenroom.engine.sound.transcription.recognizers.recognizer import Recognizer
from greenroom.engine.sound.transcription.running_transcription import RunningTranscription
from greenroom.schemas.events.events import Failed, Finished, InferenceEvent
from greenroom.schemas.logs import get_logger
from greenroom.schemas.messages.requests import InferenceRequest
from greenroom.schemas.problems import Problem, ProblemError, internal_error

log = get_logger()

Events = list[tuple[str, InferenceEvent]]

_MEMORY_SECONDS = 60.0
"""Time limit in seconds for a recording to wait for its window's memory."""
_EVICTION_SECONDS = 0.05
_MOST_WINDOWS = 4
"""Limit of windows in progress at once.

A later recording waits until one of them ends, and unloading the model waits until all do. With a window for
each request, both would take many times as long.
"""
_UNCROWDED = 8
_LITTLE_AHEAD_SECONDS = 4.0
"""Seconds decoded ahead for each recording beyond the first few; a second takes 64 kB."""


class TranscriptionEngine(CachelessEngine):
    """Transcribes recordings; implements `Engine`.

    Clients get equal shares of the steps, and so do the recordings of one client: a long one does not block
    a short one.

    Args:
        recognizer: The loaded model.
        share: The model's share of the memory account.
        clock: Clock in seconds, of any origin.
    """

    def __init__(
        self, recognizer: Recognizer, share: Share, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._recognizer: Recognizer | None = recognizer
        self._share = share
        self._turns: FairTurns[RunningTranscription] = FairTurns()
        self._cancelled: list[RunningTranscription] = []
        self._leaving = False
        self._clock = TimeBudget(clock)

    @property
    def has_work(self) -> bool:
        """True if `step` has something to compute or report."""
        return bool(len(self._turns) or self._cancelled)

    def submit(self, request: InferenceRequest, prepared: PreparedTranscription) -> None:
        """Add a recording; its file is opened in its first turn."""
        assert self._recognizer is not None, "submitted after close"
        ahead = AHEAD_SECONDS if len(self._turns) < _UNCROWDED else _LITTLE_AHEAD_SECONDS
        self.resume(RunningTranscription(request, prepared, self._recognizer, ahead))

    def suspend(self) -> Mapping[str, RunningTranscription] | None:
        """Remove and return all recordings once their started windows are done; None until then."""
        self._leaving = True
        if self._cancelled or any(each.in_window for each in self._turns):
            return None
        check_device(idle=True)  # The next engine would not notice an error of this one's device.
        return self._give_away()

    def unbegun(self) -> Mapping[str, RunningTranscription]:
        """Return the recordings of which nothing was read."""
        return {each.id: each for each in self._turns if not each.is_begun}

    def resume(self, running: RunningTranscription) -> None:
        """Add a recording, new or suspended by another engine."""
        self._turns.add(running.client, running)

    def cancel(self, request_id: str) -> None:
        """Cancel a request; the next step reports it. Unknown ids are ignored."""
        running = next((each for each in self._turns if each.id == request_id), None)
        if running is not None:
            self._turns.remove(running)
            running.close()
            self._cancelled.append(running)
            self._charge()

    def step(self) -> Events:
        """Compute a step of one recording; return all pending events."""
        events: Events = [
            (each.id, Finished("cancelled", each.usage, each.timing())) for each in self._cancelled
        ]
        self._cancelled.clear()
        chosen = self._choose()
        if chosen is not None:
            events += [(chosen.id, event) for event in self._advance(chosen)]
        return events

    def close(self) -> None:
        """Drop the weights."""
        for running in list(self._turns):
            self._turns.remove(running)
            running.close()
        self._recognizer = None
        self._share.close()

    def _give_away(self) -> dict[str, RunningTranscription]:
        recordings = self._turns.clear()
        for running in recordings:
            running.leave()
        self._charge()
        return {running.id: running for running in recordings}

    def _choose(self) -> RunningTranscription | None:
        """Return the next recording in turn that has, or can get, the memory for a window."""
        for running in self._turns.in_turn():
            if running.holds_memory or (not self._leaving and self._admit(running)):
                return running
        return None

    def _admit(self, running: RunningTranscription) -> bool:
        """Charge a window's memory; return True as well after the time limit, so that the recording fails."""
        if sum(other.holds_memory for other in self._turns) >= _MOST_WINDOWS:
            return False
        if self._charge(running.working_bytes):
            running.holds_memory = True
            return True
        if any(other.holds_memory for other in self._turns):
            return False
        waited = running.wait_for_memory()
        if not self._share.request_eviction(running.working_bytes, _EVICTION_SECONDS):
            self._share.wait_for_change(_EVICTION_SECONDS)
        return waited > _MEMORY_SECONDS

    def _charge(self, further: int = 0) -> bool:
        held = sum(each.working_bytes for each in self._turns if each.holds_memory)
        return self._share.charge_running(held + further)

    def _advance(self, running: RunningTranscription) -> list[InferenceEvent]:
        self._turns.charge(running, 1)
        assert self._recognizer is not None
        self._clock.is_alone = len(self._turns) == 1
        try:
            if not running.holds_memory:
                raise ProblemError(_no_memory(running))
            events = running.advance(self._recognizer, self._clock)
        except ProblemError as error:
            raise_unless_own(error)
            events = [Failed(error.problem, running.usage, running.timing())]
        except Exception as error:
            raise_unless_own(error)
            log.exception("transcription failed", actor="model", request_id=running.id)
            events = [Failed(internal_error())]
        if events and isinstance(events[-1], Finished | Failed):
            check_device(idle=True)
            self._turns.remove(running)
            running.close()
        if not running.in_window:
            running.holds_memory = False
            self._charge()
        return events


def _no_memory(running: RunningTranscription) -> Problem:
    needed = running.working_bytes >> 20
    detail = f"A window of the recording needs {needed} MB beside the weights (setting memory_bytes)."
    return Problem(507, "insufficient_memory", detail)
