"""The pool's record of a model."""

from __future__ import annotations

import math
from typing import Any

import attrs

from greenroom.actors.model.model import Model
from greenroom.actors.pool.eviction_policy import MAX_TIME_SLICE, ModelUse, Room
from greenroom.actors.pool.lease import Lease
from greenroom.actors.pool.restart_intensity import RestartIntensity
from greenroom.actors.pool.tickets import Ticket, TicketQueue
from greenroom.actors.pool.waiting_time import WaitingTime
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.models.lifecycle import ModelState
from greenroom.schemas.problems import Problem, model_hung
from greenroom.schemas.protocols.model_protocol import (
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
from greenroom.schemas.protocols.pool_protocol import ModelStatus


@attrs.define(eq=False)
class ModelRecord:
    """A model with its leases, waiting requests and last report. Times are `time.monotonic()`.

    Args:
        slots: Number of answers generated at once; includes the queue if the model admits all requests.
        max_queue: Maximum number of requests that wait beyond the slots.
        model: Actor of the model; None if there is none.
        remnant: Crashed actor whose worker still holds memory, and thus the place; None if there is none.
        room: Place among the loaded models, as granted by the pool; the model's own view is its state.
        paused: True if it admits no new requests because another model waits for its memory.
        admits_all: True if no request waits for a slot, and it can be unloaded while leases are open.
        suspended: True if it was unloaded or crashed; requests with open leases then wait for its next load.
        leases: Open leases with the time of their grant.
        consultations: Requests that need no weights.
        state: State last reported by its actor.
        changed: Time of that report.
        problem: Reason for its last ERROR; None since it was READY.
        preparing: Reason why the actor cannot prepare prompts now; None if it can.
        load_seconds: Duration of its last load in seconds.
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
        self.log = get_logger().bind(actor="pool", model=str(self.key))

    def record_report(self, report: ModelReport, now: float) -> None:
        """Record a report of the model."""
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
        """Record a reported state."""
        if state is ModelState.LOADING:
            self.progress = 0.0
        elif state is ModelState.READY:
            self.load_seconds, self.problem = now - self.changed, None
        self.state, self.changed = state, now

    def record_stopped(self) -> None:
        """Record that the actor stops; a waiting one becomes IDLE before and reports nothing more."""
        self.model = self.preparing = None
        if self.state is ModelState.WAITING:
            self.state = ModelState.IDLE

    def record_unloaded(self, now: float) -> None:
        """Record an unload and free the place; requests with leases queue behind those of other models."""
        self.record_state(ModelState.IDLE, now)
        self.room, self.suspended = Room.NONE, True
        self.waiting_since = now

    def record_failure(self, problem: Problem, now: float) -> None:
        """Record a failure: set ERROR, free the place, and count it unless the request caused it."""
        self.record_state(ModelState.ERROR, now)
        self.problem = problem
        self._take_room_back()
        if problem.status in (500, 503):
            self.intensity.record_failure(now)

    def record_hung(self, problem: Problem, now: float) -> None:
        """Record a hang: the worker does not release the memory, so the model keeps its place."""
        self.record_failure(problem, now)
        self.hung, self.room, self.suspended = True, Room.GRANTED, False

    def record_crash(self, model: Model) -> None:
        """Record the actor's own crash; its worker has been told to unload, but may not have ended."""
        self.model = self.preparing = None
        if self.remnant is None and not model.released:
            self.remnant = model
            self.room = Room.GRANTED if self.hung else Room.RECLAIMED

    def record_exit(self, model: Model) -> None:
        """Record the complete end of an actor, and free its place."""
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
        """True if any request waits for the model, holds a lease or consults it."""
        return bool(self.tickets or self.leases or self.consultations)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a lease, or with one for the next load."""
        return len(self.tickets) + (len(self.leases) if self.suspended and self.room is Room.NONE else 0)

    @property
    def ready(self) -> bool:
        """True if the model can generate and is not to be unloaded."""
        return self.room is Room.GRANTED and self.state is ModelState.READY

    @property
    def used_slots(self) -> int:
        """Number of slots held by leases."""
        return sum(lease.slots for lease in self.leases)

    @property
    def free_slots(self) -> int:
        """Number of slots available to waiting requests once the model is ready."""
        return self.slots - self.used_slots

    def next_ticket(self) -> Ticket | None:
        """Remove and return the next waiting request that can get a lease now."""
        return self.tickets.next(self.free_slots) if self.ready and not self.paused else None

    def refusal(self, now: float) -> Problem | None:
        """Return the reason to reject all requests now; None if there is none."""
        if self.hung:
            return model_hung(self.key.model)
        left = self.intensity.seconds_left(now)
        if left > 0 and self.problem is not None and self.state is ModelState.ERROR:
            detail = f"{self.problem.detail} It failed too often; the server tries it again later."
            return Problem(503, self.problem.code, detail, retry_after=math.ceil(left))
        return None

    def use(self, now: float) -> ModelUse:
        """Return the model's state for the eviction policy."""
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
        """Return the model's status for operators.

        Args:
            hung_threads: Number of its hung threads that have not ended.
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
