"""The pool's record of a model: the state for decisions, and the handles of its requests."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heapreplace
from typing import Any, Protocol

import attrs

from greenroom.actors.core.ref import Ref
from greenroom.actors.core.reply import Reply
from greenroom.actors.model.model_figures import ModelFigures
from greenroom.actors.pool.lease_queue import Lease, Ticket, TicketQueue
from greenroom.actors.pool.pool_state import ModelUse, Residency
from greenroom.actors.pool.residence_rules import KeepAliveWishes, RestartIntensity
from greenroom.engine.resources.fair_queue import Holdings, address_of
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_hung, queue_full
from greenroom.schemas.protocols.download_protocol import DownloadProgress
from greenroom.schemas.protocols.model_protocol import (
    Crashed,
    LoadFailed,
    LoadProgress,
    ModelCommand,
    ModelMessage,
    ModelReport,
    PreparingChanged,
    StateChanged,
    Unloaded,
    WorkerHung,
)
from greenroom.schemas.protocols.pool_protocol import LastError, ModelStatus


@attrs.define(eq=False)
class ModelRecord:
    """A model with its leases, waiting requests and last report. Times are `time.monotonic()`.

    Args:
        slots: Number of slots to lease: the model's own, and the queue if the model admits all requests.
        max_queue: Maximum number of requests that wait beyond the slots.
        model: Actor of the model; None if there is none.
        remnant: Crashed actor whose worker still holds memory, and thus a place among the loaded models; None
            if there is none.
        leases: Open leases with the time of their grant.
        prompt_queries: Requests for token counts or rendered prompts, which need no weights.
        problem: Reason for its last ERROR; None since it began to load again.
        preparing: Reason why the actor cannot prepare prompts now; None if it can.
        progress: Fraction of the weights that is loaded, 0 to 1.
        download: Progress of the download of its files; None if there is none.
    """

    use: ModelUse
    slots: int
    max_queue: int
    tickets: TicketQueue = attrs.field(factory=TicketQueue)
    waiting_time: WaitingTime = attrs.field(init=False)
    log: Any = attrs.field(init=False, repr=False)
    intensity: RestartIntensity = attrs.field(factory=RestartIntensity)
    wishes: KeepAliveWishes = attrs.field(factory=KeepAliveWishes)
    leases: dict[Lease, float] = attrs.field(factory=dict)
    prompt_queries: list[Ticket] = attrs.field(factory=list)
    model: PooledModel | None = None
    remnant: PooledModel | None = None
    problem: Problem | None = None
    preparing: Problem | None = None
    progress: float = 0.0
    last_error: LastError | None = None
    figures: ModelFigures = attrs.field(factory=ModelFigures)
    download: DownloadProgress | None = None

    model_slots: int = attrs.field(init=False)
    """Number of answers generated at once."""

    def __attrs_post_init__(self) -> None:
        self.model_slots = self.slots
        self.waiting_time = WaitingTime(self.slots)
        self.log = get_logger().bind(actor="pool", model=str(self.key))

    def record_report(self, report: ModelReport, now: float) -> None:
        """Record the parts of a report that the pool's decisions do not use."""
        match report:
            case StateChanged(state, admits_all):
                if state is ModelState.LOADING:
                    self.figures.restarts += self.problem is not None
                    self.progress, self.problem = 0.0, None
                if admits_all and self.max_queue:
                    self.slots, self.max_queue = self.slots + self.max_queue, 0
                    self.waiting_time = WaitingTime(self.slots)
            case LoadProgress(fraction):
                self.progress = fraction
            case LoadFailed(problem) | Crashed(problem) | WorkerHung(problem):
                self.problem = problem
                self.last_error = LastError(time.time(), problem.code, problem.detail)
                # Any other status is the request's fault, and broken files are not read again.
                if problem.status in (500, 503) and not problem.lasting:
                    self.intensity.record_failure(now)
            case PreparingChanged(problem):
                self.preparing = problem
            case Unloaded():
                self.forget_wishes()

    def forget_wishes(self) -> None:
        """Forget how long its users want it to stay, if it is not in memory and nobody waits for it."""
        if not (self.tickets or self.leases or self.use.ready):
            self.wishes.clear()

    def is_kept_by_others(self, client: str, now: float) -> bool:
        """Return whether other users than a client use the model, or have not had their time of it yet."""
        users = [lease.ticket.client for lease in self.leases] + [ticket.client for ticket in self.tickets]
        in_use = any(address_of(user) != address_of(client) for user in users)
        return in_use or (self.use.ready and self.wishes.is_kept_by_others(client, now))

    def takes_no_decision(self, report: ModelReport) -> bool:
        """Record figures and a download's progress; return whether a report consists of nothing else."""
        if self.figures.record(report):
            return True
        self.download = report if isinstance(report, DownloadProgress) else None
        return self.download is not None

    def add_actor(self, model: PooledModel) -> None:
        self.model = model
        if model.slots != self.model_slots:
            self.slots = self.model_slots = model.slots
            self.waiting_time = WaitingTime(self.slots)

    def remove_actor(self) -> None:
        """Record that the actor stops or has crashed; it reports nothing more."""
        self.model = self.preparing = self.download = None

    @property
    def key(self) -> ModelKey:
        return self.use.key

    @property
    def in_use(self) -> bool:
        """True if any request waits for the model, holds a lease, or uses the model without its weights."""
        return bool(self.tickets or self.leases or self.prompt_queries)

    @property
    def is_stranger(self) -> bool:
        """True if nothing is lost with the record: no catalog lists the model, and nothing of it is here."""
        absent = self.use.residency is Residency.NONE and not (self.use.pinned or self.use.preload)
        without_actor = self.model is None and self.remnant is None
        return absent and without_actor and not (self.figures.listed or self.in_use)

    @property
    def used_slots(self) -> int:
        return sum(lease.slots for lease in self.leases)

    @property
    def free_slots(self) -> int:
        """Number of slots available to waiting requests once the model is ready."""
        return self.slots - self.used_slots

    def refuse(self, reply: Reply, problem: Problem) -> None:
        """Fail a request that is not queued."""
        self.figures.record_failure(problem.code)
        reply.fail(problem)

    def fail_ticket(self, ticket: Ticket, problem: Problem) -> None:
        """Fail a request that has left the queue, and log that."""
        self.figures.record_failure(problem.code)
        ticket.fail(problem, self.log)

    @property
    def held(self) -> Holdings:
        return Holdings((lease.ticket.client, lease.slots) for lease in self.leases)

    def next_ticket(self, now: float) -> Ticket | None:
        """Remove and return the next waiting request that can get a lease now."""
        if not (self.tickets and self.use.ready) or self.use.paused:
            return None
        return self.tickets.next(self.held, self.free_slots, self.slots, now)

    def refusal(self, now: float) -> Problem | None:
        """Return the reason to reject all requests now; None if there is none."""
        if self.use.hung:
            return self.problem or model_hung(self.key.model)
        left = self.intensity.seconds_left(now)
        if left > 0 and self.problem is not None and self.use.state is ModelState.ERROR:
            detail = f"{self.problem.detail} It failed too often; the server tries it again later."
            return Problem(503, self.problem.code, detail, retry_after=math.ceil(left))
        return None

    def eta_of_next(self, now: float) -> int | None:
        """Return the estimated milliseconds until the next waiting request is served; None if unknown."""
        if self.use.ready:
            return self.etas([(1, None)], now)[0]
        return self.waiting_time.for_load(now - self.use.changed, self.progress) if self.loading else None

    def etas(self, waiting: Sequence[tuple[int, int | None]], now: float) -> list[int | None]:
        """Return the milliseconds until requests of these slots and most tokens begin (`WaitingTime`)."""
        running = [
            (now - granted, lease.ticket.tokens)
            for lease, granted in self.leases.items()
            for _ in range(lease.slots)
        ]
        return self.waiting_time.of_waiting(running, waiting)

    def queue_refusal(self, client: str, now: float, priority: int = 0) -> Problem | None:
        """Return the reason why no further request of a client may wait; None if one may.

        Who is alone may fill the slots and the queue. Others still get their share of both. Requests of
        lowered priority never take a place in the queue from others, even in an engine that admits all
        requests.
        """
        lowered = 0 if priority > 0 else sum(lease.slots for lease in self.leases if lease.priority > 0)
        places = self.max_queue + (lowered if self.slots > self.model_slots else 0)
        if self.tickets.length_beyond(self.free_slots, priority) <= places:
            return None
        asked = [(lease.ticket.client, lease.slots) for lease in self.leases]
        asked += [(ticket.client, 1) for ticket in self.tickets]
        if Holdings(asked).allow(client, 1, self.slots + self.max_queue):
            return None
        inside = max(0, self.used_slots - self.model_slots)  # these wait in an engine that admits all
        retry_after = seconds_until_retry(self.eta_of_next(now))
        return queue_full(self.key.model, len(self.tickets) + inside, retry_after)

    def status(self, hung_threads: int) -> ModelStatus:
        """Return the model's status for operators."""
        use = self.use
        problem = self.problem if use.state is ModelState.ERROR else None
        return ModelStatus(
            self.key,
            ModelState.DOWNLOADING if self.download is not None else use.state,
            running=len(self.leases) + len(self.tickets) - use.waiting,
            slots=self.used_slots,
            waiting=use.waiting,
            problem=None if problem is None else problem.detail,
            load_progress=self.progress,
            hung=use.hung,
            prepares=self.preparing is None,
            hung_threads=hung_threads,
            since=time.time() - (time.monotonic() - use.changed) if use.changed else 0.0,
            nbytes=use.nbytes,
            leases=len(self.leases),
            queue=len(self.tickets),
            restarts=self.figures.restarts,
            last_error=self.last_error,
            expires_at=self._expires_at,
            snapshot=self.figures.snapshot,
            totals=self.figures.totals() if self.figures.listed else None,
            pinned=use.pinned,
            download=self.download,
        )

    @property
    def _expires_at(self) -> float | None:
        """Unix time at which it is unloaded if no further request comes; None for never."""
        use, now = self.use, time.monotonic()
        if use.ttl is None or use.pinned or not use.ready:
            return None
        return time.time() + (now + use.ttl if use.expires_at is None else use.expires_at) - now

    @property
    def loading(self) -> bool:
        """True while its files are opened or its weights are loaded."""
        return self.use.residency in (Residency.OPENING, Residency.GRANTED) and not self.use.ready


_REMEMBERED = 32  # Latest requests from which times are estimated
_MIN_PROGRESS = 0.05


class WaitingTime:
    """The estimator of a model's waiting times, from the times that earlier requests held their slots."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._per_token: deque[float] = deque(maxlen=_REMEMBERED)

    def observe(self, seconds: float, tokens: int | None = None) -> None:
        """Record the time for which a request held its slots. `tokens`: most tokens that it wanted; None if
        it set no limit.
        """
        self._seconds.append(seconds)
        if tokens:
            self._per_token.append(seconds / tokens)

    def rest(self, elapsed: float, tokens: int | None = None) -> float | None:
        """Return the estimated seconds that a request holds its slots further; None if unknown.

        That is the median of those that took longer. One that takes longer than all is expected to take as
        long again.
        """
        known = [each * tokens for each in self._per_token] if tokens and self._per_token else self._seconds
        longer = sorted(whole - elapsed for whole in known if whole > elapsed)
        if longer:
            return longer[len(longer) // 2]
        return elapsed if known else None

    def of_waiting(
        self, running: Iterable[tuple[float, int | None]], waiting: Sequence[tuple[int, int | None]]
    ) -> list[int | None]:
        """Return the estimated milliseconds until each waiting request begins; None where unknown.

        Args:
            running: For each slot in use, the seconds so far and the most tokens of its request.
            waiting: Slots and most tokens of the requests that wait, in their order.
        """
        rests = [self.rest(*each) for each in running]
        ends = [rest for rest in rests if rest is not None]
        if len(ends) < len(rests) or not self._seconds:
            return [None] * len(waiting)
        ends += [0.0] * (self._slots - len(ends))
        heapify(ends)
        begins: list[int | None] = []
        for slots, tokens in waiting:
            begins.append(round(1000 * ends[0]))
            whole = self.rest(0.0, tokens) or 0.0
            for _ in range(slots):
                heapreplace(ends, ends[0] + whole)
        return begins

    @staticmethod
    def for_load(elapsed: float, progress: float) -> int | None:
        """Return the milliseconds left of a load that is at `progress` after `elapsed` seconds, if known."""
        if progress < _MIN_PROGRESS:
            return None
        return round(1000 * elapsed * (1 - progress) / progress)


RETRY_UNKNOWN = 2  # Seconds after which a client retries if no estimate is known
MAX_RETRY = 60
"""Longest time in seconds; official clients do not wait longer than two minutes before they retry."""


def seconds_until_retry(eta_ms: int | None) -> int:
    """Return the seconds of a `Retry-After` header, from the estimated milliseconds if these are known."""
    return RETRY_UNKNOWN if eta_ms is None else min(max(1, math.ceil(eta_ms / 1000)), MAX_RETRY)


class PooledModel(Protocol):
    """An actor that answers for a model under the pool's supervision.

    It obeys the pool's commands and reports each change of its state. If it takes no room, it is loaded
    whenever a request wants it, and never unloaded for others.
    """

    @property
    def key(self) -> ModelKey:
        """Key of the model."""

    @property
    def ref(self) -> Ref[ModelMessage]:
        """Reference to the actor, for requests."""

    @property
    def slots(self) -> int:
        """Number of answers that it generates at once, at least 1."""

    @property
    def takes_room(self) -> bool:
        """True if it needs memory of this machine, and thus a place among the loaded models."""

    @property
    def released(self) -> bool:
        """True if nothing of its memory is in use."""

    def send(self, command: ModelCommand) -> None:
        """Queue a command for execution after the earlier ones; never blocks."""

    async def run(self) -> None:
        """Receive messages until stopped."""

    async def wait_released(self) -> None:
        """Wait until a crashed or stopped actor's memory is released."""


MakeModel = Callable[[ModelKey, ModelState, Callable[[ModelReport], None]], PooledModel]
"""Function that creates a model's actor in a state, with the callback for its reports; it must not block."""
