"""The engine of a loaded speech or transcription model; it serves requests in fair order on one thread."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from greenroom.engine.resources.device_errors import check_device, raise_unless_own, synchronize_streams
from greenroom.engine.resources.fair_queue import ClientRequest, FairQueue
from greenroom.engine.resources.memory_account import Share, share_statistics
from greenroom.engine.resources.residence import CachelessEngine
from greenroom.schemas.events.events import Failed, Finished, FinishReason, InferenceEvent, Usage
from greenroom.schemas.events.statistics import EngineSnapshot
from greenroom.schemas.logs import get_logger
from greenroom.schemas.problems import Problem, ProblemError, internal_error

log = get_logger(__name__)

Events = list[tuple[str, InferenceEvent]]

_WAIT_SECONDS = 0.05  # Longest wait per step for memory that other models release, in seconds


class SoundRequest(ClientRequest, Protocol):
    """A request that is computed piece by piece: a piece of text to speak, or a window of a recording."""

    @property
    def request_id(self) -> str:
        """The request's id."""

    @property
    def is_begun(self) -> bool:
        """True if computation has started."""

    @property
    def in_piece(self) -> bool:
        """True if a piece is started but not complete; between pieces, another engine can take over."""

    def finished(self, reason: FinishReason) -> Finished:
        """Return the final event, with the request's usage and timing."""

    def close(self) -> None:
        """Drop the computation, even within a piece, and release all resources."""


ModelT = TypeVar("ModelT")
RequestT = TypeVar("RequestT", bound=SoundRequest)


class SoundEngine(CachelessEngine, Generic[ModelT, RequestT]):
    """An engine whose step computes a time slice of one request's piece. Clients get equal shares.

    If only one piece may be in progress, it is completed before another starts, and its client is charged for
    it as a whole. Its memory stays charged for the next piece, so that playback does not stall. If several
    may be in progress, their time slices alternate, and a piece's memory is charged while it is in progress.

    Args:
        share: The model's share of the memory account, charged with the weights.
        expected: Function that returns the expected cost of a request's next piece.
        clock: Clock in seconds, of any origin.
    """

    piece: ClassVar[str]
    """Name of a piece, with which error messages begin."""

    def __init__(
        self,
        model: ModelT,
        share: Share,
        max_pieces: int,
        expected: Callable[[RequestT], float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model: ModelT | None = model
        self._share = share
        self._max_pieces = max_pieces
        self._clock = clock
        self._queue: FairQueue[RequestT] = FairQueue(expected=expected)
        self._current: RequestT | None = None
        self._unpaid, self._leaving = 0.0, False
        self._events: Events = []

    @property
    def has_work(self) -> bool:
        return bool(self._events or len(self._queue))

    def snapshot(self) -> EngineSnapshot:
        return _snapshot(list(self._queue), self._share)

    def suspend(self) -> Mapping[str, RequestT] | None:
        """Remove and return all requests once their started pieces are done; None until then."""
        self._leaving = True
        if self._events or any(request.in_piece for request in self._queue):
            return None
        check_device(idle=True)  # The next engine would not notice an error of this one's device.
        requests = {request.request_id: request for request in self._queue.clear()}
        self._charge_memory()
        return requests

    def unbegun(self) -> Mapping[str, RequestT]:
        """Remove and return the requests that have not started, so that another engine can serve them."""
        requests = [request for request in self._queue if not request.is_begun]
        for request in requests:
            self._queue.remove(request)
        return {request.request_id: request for request in requests}

    def resume(self, request: RequestT) -> None:
        """Add a request, new or suspended by another engine."""
        self._queue.add(request)

    def cancel(self, request_id: str) -> None:
        """Cancel a request; the next step reports its usage. Unknown ids are ignored."""
        for request in [each for each in self._queue if each.request_id == request_id]:
            self._end(request, request.finished("cancelled"))

    def step(self) -> Events:
        """Compute a time slice of the request whose turn it is; return all pending events."""
        request = self._choose()
        if request is not None:
            self._advance(request)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Drop the weights and all requests. Raises DeviceError: the device's last work has failed;
        everything is freed even so.
        """
        import mlx.core as mx

        for request in list(self._queue):
            self._remove(request)
        self._release_model()
        self._share.close()
        synchronize_streams()
        mx.clear_cache()

    def _release_model(self) -> None:
        self._model = None

    @abstractmethod
    def _piece_bytes(self, request: RequestT) -> int:
        """Return the memory of a piece's computation in bytes, without the weights."""

    @abstractmethod
    def _compute(self, model: ModelT, request: RequestT) -> list[InferenceEvent]:
        """Compute a time slice; return its events, the last of which is Finished at the request's end."""

    def _cost(self, seconds: float) -> float:
        """Return the cost of a time slice; by default, all slices cost the same."""
        return 1.0

    def _problem_of(self, error: Exception, request: RequestT) -> Problem:
        if isinstance(error, ProblemError):
            return error.problem
        log.exception("request failed", request_id=request.request_id)
        return internal_error()

    def _advance(self, request: RequestT) -> None:
        assert self._model is not None
        self._current = request
        began = self._clock()
        try:
            events = self._compute(self._model, request)
            if events and isinstance(events[-1], Finished):
                check_device(idle=True)
        except Exception as error:  # The next piece starts fresh, so no other request is affected.
            raise_unless_own(error)
            problem, end = self._problem_of(error, request), request.finished("stop")
            events = [Failed(problem, end.usage, end.timing)]
        self._unpaid += self._cost(self._clock() - began)
        self._events += [(request.request_id, event) for event in events]
        if events and isinstance(events[-1], Finished | Failed):
            self._remove(request)
        elif self._max_pieces > 1 or not request.in_piece:
            self._pay()
            self._charge_memory()

    def _choose(self) -> RequestT | None:
        """Return the next request in fair order whose piece is in progress or fits into memory."""
        if self._current is not None:
            return self._current
        started = sum(request.in_piece for request in self._queue)
        waiting: list[RequestT] = []
        for request in self._queue.in_turn():
            if request.in_piece:
                return request
            if not self._leaving and started < self._max_pieces:
                if self._charge_memory(self._piece_bytes(request)):
                    return request
                waiting.append(request)
        if waiting and not started:
            self._wait_for_memory(waiting)
        return None

    def _wait_for_memory(self, requests: Sequence[RequestT]) -> None:
        """Request memory from other models and wait for it; fail requests whose pieces can never fit."""
        capacity = self._share.capacity() or 0
        for request in requests:
            needed = self._piece_bytes(request)
            if needed > capacity:
                self._end(request, Failed(_insufficient_memory(self.piece, needed, capacity)))
        if not self._events and not self._share.request_eviction(
            self._piece_bytes(requests[0]), _WAIT_SECONDS
        ):
            self._share.wait_for_change(_WAIT_SECONDS)

    def _charge_memory(self, further: int = 0) -> bool:
        """Charge the memory of the pieces in progress, plus `further` bytes; return whether it fits."""
        needed = sum(self._piece_bytes(request) for request in self._queue if request.in_piece) + further
        if self._max_pieces > 1:
            return self._share.charge_running(needed, new=True)
        if len(self._queue):
            return self._share.charge_running(max(needed, self._share.running), new=True)
        if self._share.running:
            import mlx.core as mx

            self._share.charge_running(0)
            mx.clear_cache()
        return True

    def _pay(self) -> None:
        """Charge the current request's client for its complete turn; see `FairQueue.charge`."""
        request, self._current = self._current, None
        if request is not None:
            self._queue.charge([request], self._unpaid)
        self._unpaid = 0.0

    def _end(self, request: RequestT, event: Finished | Failed) -> None:
        self._events.append((request.request_id, event))
        self._remove(request)

    def _remove(self, request: RequestT) -> None:
        if request is self._current:
            self._pay()
        self._queue.remove(request)
        request.close()
        self._charge_memory()


def _insufficient_memory(piece: str, needed: int, capacity: int) -> Problem:
    detail = f"{piece} takes {needed >> 20} MB beside the weights; {capacity >> 20} MB are left"
    return Problem(507, "insufficient_memory", f"{detail} (setting memory_bytes).")


def _snapshot(requests: Sequence[SoundRequest], share: Share) -> EngineSnapshot:
    running, usage = sum(request.is_begun for request in requests), Usage()
    for request in requests:
        usage = usage.with_request(request.finished("stop").usage)
    return EngineSnapshot(running, len(requests) - running, usage, share_statistics(share))
