"""The pool's state with the records of its models; every change of it is an event."""

from __future__ import annotations

from collections.abc import Collection

from greenroom.actors.pool.eviction_policy import Plan, plan
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.pool_events import Decided, ModelEvent, PoolEvent, apply
from greenroom.actors.pool.pool_state import ModelUse, PoolState
from greenroom.schemas.logs import get_logger
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.settings.settings import Settings


class Ledger:
    """The state on which the pool decides, and the record of each model.

    Each event is a line of the debug log, from which the decisions can be repeated.
    """

    def __init__(self, settings: Settings) -> None:
        self._slots = settings.max_batch
        self._max_queue = settings.max_queue
        self._records: dict[ModelKey, ModelRecord] = {}
        self._log = get_logger().bind(actor="pool")
        self.state = PoolState(limit=settings.memory_bytes, max_loaded_models=settings.max_loaded_models)

    @property
    def records(self) -> Collection[ModelRecord]:
        """Records of all known models."""
        return self._records.values()

    def __getitem__(self, key: ModelKey) -> ModelRecord:
        """Return the record of a model, which is new if none is known."""
        if key not in self._records:
            self._records[key] = ModelRecord(ModelUse(key), self._slots, self._max_queue)
        return self._records[key]

    def apply(self, event: ModelEvent) -> None:
        """Change the state of a model by an event."""
        self._change(event)
        self[event.key].use = self.state.models[event.key]

    def decide(self, event: PoolEvent) -> Plan:
        """Decide on the present state, and change it by the decisions.

        Args:
            event: Latest event: the time, and the memory that other programs leave.
        """
        self._change(event)
        decided = plan(self.state)
        if decided != Plan() or any(model.paused for model in self.state.models.values()):
            self._change(Decided(decided))
            for key, use in self.state.models.items():
                self[key].use = use
        return decided

    def _change(self, event: PoolEvent) -> None:
        self._log.debug("pool changed", change=event)
        self.state = apply(self.state, event)
