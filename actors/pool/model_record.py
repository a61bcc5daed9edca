"""What the pool knows of one model."""

from __future__ import annotations

import math
from typing import Any

import attrs
import structlog

from greenroom.actors.model.lifecycle import Lifecycle
from greenroom.actors.model.model import Model
from greenroom.actors.pool.eviction_policy import LONGEST_TURN, Resident
from greenroom.actors.pool.lease import Lease
from greenroom.actors.pool.restart_intensity import RestartIntensity
from greenroom.actors.pool.tickets import TicketQueue
from greenroom.actors.pool.waiting_time import WaitingTime
from greenroom.schemas.events import QueueStatus
from greenroom.schemas.lifecycle import ModelState
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.model_protocol import ModelStatus
from greenroom.schemas.problems import Problem, model_hung


@attrs.define(eq=False)
class ModelRecord:
    """One model: where it stands, who holds it, who waits for it. Times are `time.monotonic()`.

    Args:
        slots: Requests that it generates for at once.
        model: The actor that answers for it, while there is one.
        leases: Open leases and when they were granted.
        closed: It takes no new requests, because another model waits for its room.
        changed: When its state last changed.
        load_seconds: How long its last load took.
    """

    key: ModelKey
    slots: int
    tickets: TicketQueue = attrs.field(factory=TicketQueue)
    waiting_time: WaitingTime = attrs.field(init=False)
    log: Any = attrs.field(init=False, repr=False)
    lifecycle: Lifecycle = attrs.field(factory=Lifecycle)
    intensity: RestartIntensity = attrs.field(factory=RestartIntensity)
    leases: dict[Lease, float] = attrs.field(factory=dict)
    model: Model | None = None
    problem: Problem | None = None
    closed: bool = False
    hung: bool = False
    progress: float = 0.0
    last_used: float = 0.0
    changed: float = 0.0
    waiting_since: float = 0.0
    load_seconds: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.waiting_time = WaitingTime(self.slots)
        self.log = structlog.get_logger().bind(actor="model", model=str(self.key))

    @property
    def state(self) -> ModelState:
        """Where the model stands."""
        return self.lifecycle.state

    def move(self, state: ModelState, now: float) -> None:
        """Take one step of the model's life, and log it."""
        before, seconds = self.state, now - self.changed
        self.lifecycle.to(state)
        self.changed = now
        if state is ModelState.READY:
            self.load_seconds = seconds
        fields = {"before": str(before), "state": str(state)}
        if state is ModelState.ERROR and self.problem is not None:
            fields["problem"] = self.problem.code
        self.log.log(40 if state is ModelState.ERROR else 20, "state changed", **fields)
        if before is ModelState.ERROR and state is ModelState.LOADING:
            self.log.info("restarted")

    @property
    def has_free_slot(self) -> bool:
        """Whether a lease can be granted now."""
        return self.state is ModelState.READY and not self.closed and len(self.leases) < self.slots

    @property
    def free_slots(self) -> int:
        """Slots that those who wait will get as soon as the model is ready for them."""
        return max(0, self.slots - len(self.leases))

    def refusal(self, now: float) -> Problem | None:
        """Why no request can be taken at all, if so."""
        if self.hung:
            return model_hung(self.key.model)
        left = self.intensity.seconds_left(now)
        if left > 0 and self.problem is not None and self.state is ModelState.ERROR:
            detail = f"{self.problem.detail} It has failed too often and is left alone for a while."
            return Problem(503, self.problem.code, detail, retry_after=math.ceil(left))
        return None

    def resident(self, now: float) -> Resident:
        """The record as the residency policy sees it."""
        turn = min(self.load_seconds, LONGEST_TURN)
        return Resident(
            self.key,
            self.state,
            leases=len(self.leases),
            waiting=len(self.tickets),
            last_used=self.last_used,
            waiting_since=self.waiting_since,
            turn_left=self.changed + turn - now,
            hung=self.hung,
        )

    def queue_status(self, position: int, now: float) -> QueueStatus:
        """What the waiting request at `position` is told."""
        match self.state:
            case ModelState.LOADING:
                eta = self.waiting_time.for_load(now - self.changed, self.progress)
                return QueueStatus("loading", position, self.key.model, eta)
            case ModelState.READY if not self.closed:
                return QueueStatus("queued", position, self.key.model, self.waiting_time.for_slot(position))
            case _:
                return QueueStatus("waiting_for_model", position, self.key.model)

    def status(self) -> ModelStatus:
        """The record as operators see it."""
        in_error = self.state is ModelState.ERROR and self.problem is not None
        return ModelStatus(
            self.key,
            self.state,
            running=len(self.leases),
            waiting=len(self.tickets),
            problem=self.problem.detail if in_error and self.problem is not None else None,
            load_progress=self.progress,
            hung=self.hung,
        )
