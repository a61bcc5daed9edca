"""The pool's state with the records of its models; every change of it is an event."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

import attrs

from greenroom.actors.pool.eviction_policy import next_expiry, plan
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.pool_events import (
    Configured,
    Decided,
    MemoryRead,
    ModelEvent,
    ModelForgotten,
    PoolEvent,
    apply,
)
from greenroom.actors.pool.pool_state import ModelUse, Plan, PoolState
from greenroom.actors.pool.queue_statuses import WaitingRoom
from greenroom.actors.pool.residence_rules import ResidenceRule
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings

MAX_STRANGERS = 64
"""Maximum number of models to remember that no catalog lists and no request uses.

Clients choose their names.
"""


class Ledger:
    """The state on which the pool decides, and the record of each model.

    Each event is a line of the debug log, from which the decisions can be repeated.

    Args:
        rule_of: Function that returns the operator's settings of a model.

    Attributes:
        on_change: Callback for each event; must not block.
    """

    def __init__(
        self,
        settings: Settings,
        rule_of: Callable[[str], ResidenceRule] = lambda model: ResidenceRule(),
        revision: Callable[[], int] = lambda: 0,
    ) -> None:
        self._rule_of = rule_of
        self._rules: dict[ModelKey, ResidenceRule] = {}
        self._revision, self._configured = revision, revision()
        self._slots = settings.max_batch
        self._max_queue = settings.max_queue
        self._records: dict[ModelKey, ModelRecord] = {}
        self._log = get_logger().bind(actor="pool")
        self.on_change: Callable[[PoolEvent], None] = lambda event: None
        self.state = PoolState(limit=settings.memory_bytes, max_loaded_models=settings.max_loaded_models)

    @property
    def records(self) -> Collection[ModelRecord]:
        return self._records.values()

    @property
    def waiting_room(self) -> WaitingRoom:
        """The models for which requests wait, and the memory that they share."""
        return WaitingRoom(self.records, self.state.limit)

    def __getitem__(self, key: ModelKey) -> ModelRecord:
        """Return the record of a model; a new one for an unknown model."""
        if key not in self._records:
            self._records[key] = ModelRecord(ModelUse(key), self._slots, self._max_queue)
            rule = self._rules[key] = self._rule_of(key.model)
            if rule.pinned or rule.ttl is not None:
                self.apply(Configured(key, rule.pinned, rule.ttl))
        return self._records[key]

    @property
    def next_expiry(self) -> float | None:
        """Time at which the next model is to be unloaded for being idle; None if there is none."""
        return next_expiry(self.state)

    def needs_decision(self, now: float) -> bool:
        """Return whether the pool may have to decide on any model at this time."""
        if self._configured != (revision := self._revision()):
            self._configured = revision
            self._configure_again()
        expiry = self.next_expiry
        return any(model.undecided for model in self.state.models.values()) or (
            expiry is not None and expiry <= now
        )

    def apply(self, event: ModelEvent) -> None:
        preloads = self[event.key].use.preload
        self._change(event)
        self._update_records()
        use = self.state.models[event.key]
        if preloads and not use.preload and not use.ready:
            limit = self.state.limit
            self._log.warning("model not preloaded", model=str(event.key), required=use.need, limit=limit)

    def forget_strangers(self) -> None:
        """Forget the oldest models that only requests have named, beyond the maximum number."""
        strangers = [key for key, record in self._records.items() if record.is_stranger]
        for key in strangers[:-MAX_STRANGERS]:
            del self._records[key], self._rules[key]
            self._change(ModelForgotten(key))

    def decide(self, event: PoolEvent) -> Plan:
        """Decide on the present state, and change it by the decisions. `event`: latest event: the time, and
        the memory that other programs leave.
        """
        self._change(event)
        decided = plan(self.state)
        if decided != Plan() or any(model.paused for model in self.state.models.values()):
            self._change(Decided(decided))
            self._update_records()
        for key, beneficiary in zip(decided.unload, decided.beneficiaries, strict=True):
            self._records[key].figures.evictions += beneficiary is not None
        return decided

    def _configure_again(self) -> None:
        for key in self._records:
            rule = self._rule_of(key.model)
            before, self._rules[key] = self._rules.get(key, rule), rule
            # A pin that an operator has set since stays while the settings say what they said.
            if (rule.pinned, rule.ttl) != (before.pinned, before.ttl):
                self.apply(Configured(key, rule.pinned, rule.ttl))

    def _update_records(self) -> None:
        for key, use in self.state.models.items():
            self._records[key].use = use

    def _change(self, event: PoolEvent) -> None:
        self._log.debug("pool changed", change=event)
        self.state = apply(self.state, event)
        self.on_change(event)


MIN_AGE = 0.1  # Least seconds for which a reading is valid, since bursts of requests cause many decisions

SHARE = 100
"""Factor: a reading is valid for so many times its duration, and so takes at most 1 % of the loop's time."""


class MemoryReading:
    """The latest reading, renewed on request.

    Args:
        read: Function that returns the bytes that other programs leave; None if unknown.
        held: Function that returns the bytes that unloaded models have left, at once.
        clock: Clock in seconds that measures readings.
    """

    def __init__(
        self,
        read: Callable[[], int | None],
        held: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._read = read
        self._held = held
        self._clock = clock
        self._expires_at = -math.inf
        self._available: int | None = None

    def latest(self, now: float) -> MemoryRead:
        """Return the state of memory. `now`: present time, by `time.monotonic()`."""
        if now >= self._expires_at:
            before = self._clock()
            self._available = self._read()
            self._expires_at = now + max(MIN_AGE, SHARE * (self._clock() - before))
        return MemoryRead(self._available, now, self._held())

    def without_held(self, now: float) -> MemoryRead:
        """Return the state that memory will have once the held memory is released."""
        read = self.latest(now)
        available = None if read.available is None else read.available + read.held
        return attrs.evolve(read, available=available, held=0)

    def expire(self) -> None:
        """Read anew at the next decision, since memory has been freed."""
        self._expires_at = -math.inf
