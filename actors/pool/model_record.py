"""What the pool knows of one model."""

from __future__ import annotations

import math
from typing import Any

import attrs
import structlog

from greenroom.actors.model.model import Model
from greenroom.actors.pool.eviction_policy import MAX_TIME_SLICE, ModelUse, Room
from greenroom.actors.pool.lease import Lease
from greenroom.actors.pool.restart_intensity import RestartIntensity
from greenroom.actors.pool.tickets import Ticket, TicketQueue
from greenroom.actors.pool.waiting_time import WaitingTime
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import (
    Crashed,
    HungWorkerReturned,
    LoadFailed,
    LoadProgress,
    ModelReport,
    PreparingChanged,
    StateChanged,
    Unloaded,
    WorkerHung,
)
from greenroom.schemas.pool_protocol import ModelStatus
from greenroom.schemas.problems import Problem, model_hung


@attrs.define(eq=False)
class ModelRecord:
    """One model: who holds it, who waits for it, and what it reported last. Times are `time.monotonic()`.

    Args:
        slots: Answers that it generates at once; all that may wait too, once it is known to admit all.
        max_queue: Requests that may wait beyond the slots.
        model: The actor that answers for it, while there is one.
        remnant: An actor that has crashed and whose worker still has memory: that keeps the room.
        room: What the pool has decided: the model's own account of that is its state.
        paused: It takes no new requests, because another model waits for its room.
        admits_all: Nobody waits for a slot in it, and it can be unloaded under its leases.
        suspended: It has been unloaded under them, or crashed, and whoever holds one waits for its next load.
        leases: Open leases and when they were granted.
        consultations: Requests that ask for what needs no weights.
        state: Where its actor stood when it reported last.
        changed: When that was.
        problem: Why it was in ERROR last; None since it was READY.
        preparing: Why no thread of the actor prepares prompts now; None if one does.
        load_seconds: How long its last load took.
    """

    key: ModelKey
    slots: int
    max_queue: int
    tickets: TicketQueue = attrs.field(factory=TicketQueue)
    waiting_time: WaitingTime = attrs.field(init=False)
    log: Any = attrs.field(init=False, repr=False)
    intensity: RestartIntensity = attrs.field(factory=RestartIntensity)
    leases: dict[Lease, float] = attrs.field(factory=dict)
    consultations: list[Ticket] = attrs.field(factory=list)
    model: Model | None = None
    remnant: Model | None = None
    room: Room = Room.NONE
    paused: bool = False
    admits_all: bool = False
    suspended: bool = False
    last_used: float = 0.0
    waiting_since: float = 0.0
    state: ModelState = ModelState.IDLE
    changed: float = 0.0
    problem: Problem | None = None
    preparing: Problem | None = None
    hung: bool = False
    progress: float = 0.0
    load_seconds: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.waiting_time = WaitingTime(self.slots)
        self.log = structlog.get_logger().bind(actor="pool", model=str(self.key))

    def record_report(self, report: ModelReport, now: float) -> None:
        """Keep what the model reports."""
        match report:
            case StateChanged(state, admits_all):
                self.record_state(state, now)
                self.admits_all |= admits_all
                if admits_all and self.max_queue:
                    self.slots, self.max_queue = self.slots + self.max_queue, 0
                    self.waiting_time = WaitingTime(self.slots)
            case LoadProgress(fraction):
                self.progress = fraction
            case Unloaded():
                self.record_unloaded(now)
            case LoadFailed(problem) | Crashed(problem):
                self.record_failure(problem, now)
                self.suspended = self.admits_all and isinstance(report, Crashed)
            case WorkerHung(problem):
                self.record_hung(problem, now)
            case HungWorkerReturned():
                self.hung, self.room = False, Room.NONE
            case PreparingChanged(problem):
                self.preparing = problem

    def record_state(self, state: ModelState, now: float) -> None:
        """Keep the state that the model has reported."""
        if state is ModelState.LOADING:
            self.progress = 0.0
        elif state is ModelState.READY:
            self.load_seconds, self.problem = now - self.changed, None
        self.state, self.changed = state, now

    def record_stopped(self) -> None:
        """Remove the actor; one that waited for room is IDLE before it stops, and reports nothing more."""
        self.model = self.preparing = None
        if self.state is ModelState.WAITING:
            self.state = ModelState.IDLE

    def record_unloaded(self, now: float) -> None:
        """Take the room back of a model that needs none; who had a slice waits behind those who have not."""
        self.record_state(ModelState.IDLE, now)
        self.room, self.suspended = Room.NONE, True
        self.waiting_since = now

    def record_failure(self, problem: Problem, now: float) -> None:
        """Keep why a model is in ERROR, take its room back, and count what it could have done better."""
        self.record_state(ModelState.ERROR, now)
        self.problem = problem
        self._take_room_back()
        if problem.status in (500, 503):
            self.intensity.record_failure(now)

    def record_hung(self, problem: Problem, now: float) -> None:
        """Leave a model the room that its worker does not give back."""
        self.record_failure(problem, now)
        self.hung, self.room, self.suspended = True, Room.GRANTED, False

    def record_crash(self, model: Model) -> None:
        """Remove an actor that has failed itself; its worker has been told to unload, and has not ended."""
        self.model = self.preparing = None
        if self.remnant is None and not model.released:
            self.remnant = model
            self.room = Room.GRANTED if self.hung else Room.RECLAIMED

    def record_exit(self, model: Model) -> None:
        """Take the room back of an actor of which nothing is left."""
        if model is self.remnant:
            self.remnant, self.hung = None, False
            self._take_room_back()
        elif model is self.model:
            self.model = self.preparing = None
            self._take_room_back()

    def _take_room_back(self) -> None:
        if self.remnant is None:
            self.room = Room.NONE

    @property
    def in_use(self) -> bool:
        """Whether any request waits for the model, holds it or consults it."""
        return bool(self.tickets or self.leases or self.consultations)

    @property
    def waiting(self) -> int:
        """Requests that wait for it: for a lease, or with one for its next load."""
        return len(self.tickets) + (len(self.leases) if self.suspended and self.room is Room.NONE else 0)

    @property
    def ready(self) -> bool:
        """Whether the model can generate, and may keep its room."""
        return self.room is Room.GRANTED and self.state is ModelState.READY

    @property
    def used_slots(self) -> int:
        """Slots that its leases hold."""
        return sum(lease.slots for lease in self.leases)

    @property
    def free_slots(self) -> int:
        """Slots that those who wait will get as soon as the model is ready for them."""
        return self.slots - self.used_slots

    def next_ticket(self) -> Ticket | None:
        """Remove and return the waiting request that can have a lease now."""
        return self.tickets.next(self.free_slots) if self.ready and not self.paused else None

    def refusal(self, now: float) -> Problem | None:
        """Return why no request can be taken at all, if so."""
        if self.hung:
            return model_hung(self.key.model)
        left = self.intensity.seconds_left(now)
        if left > 0 and self.problem is not None and self.state is ModelState.ERROR:
            detail = f"{self.problem.detail} It has failed too often and is left alone for a while."
            return Problem(503, self.problem.code, detail, retry_after=math.ceil(left))
        return None

    def use(self, now: float) -> ModelUse:
        """Return the record as the eviction policy sees it."""
        time_slice = min(self.load_seconds, MAX_TIME_SLICE)
        return ModelUse(
            self.key,
            self.room,
            ready=self.ready,
            leases=len(self.leases),
            suspendable=self.admits_all,
            waiting=self.waiting,
            last_used=self.last_used,
            waiting_since=self.waiting_since,
            slice_left=self.changed + time_slice - now,
            hung=self.hung,
        )

    def status(self, hung_threads: int) -> ModelStatus:
        """Return the record as operators see it.

        Args:
            hung_threads: Those that were lost over its work and have not ended.
        """
        problem = self.problem if self.state is ModelState.ERROR else None
        return ModelStatus(
            self.key,
            self.state,
            running=len(self.leases) + len(self.tickets) - self.waiting,
            slots=self.used_slots,
            waiting=self.waiting,
            problem=None if problem is None else problem.detail,
            load_progress=self.progress,
            hung=self.hung,
            prepares=self.preparing is None,
            hung_threads=hung_threads,
        )
