"""Requests of operators to unload models, until each has been answered."""

from __future__ import annotations

from greenroom.actors.core.reply import Reply
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.planning.pool_state import Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, model_hung, model_pinned
from greenroom.schemas.protocols.model_protocol import ModelReport, Unloaded
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded, Unloading


class UnloadRequests:
    """The replies that wait for models to leave the memory."""

    def __init__(self) -> None:
        self._waiting: dict[ModelKey, list[Reply]] = {}

    def add(self, record: ModelRecord, reply: Reply, *, spares_pinned: bool) -> bool:
        """Answer a request at once, or keep it; return whether the model is to be unloaded."""
        if record.use.hung:
            reply.fail(model_hung(record.key.model))
        elif spares_pinned and record.use.pinned:
            reply.fail(model_pinned(record.key.model))
        else:
            reply.send(Unloading(record.key))
            if record.use.resident:
                self._waiting.setdefault(record.key, []).append(reply)
                return True
            reply.send(ModelUnloaded(record.key, 0))
            reply.end()
        return False

    def answer(self, record: ModelRecord, report: ModelReport | None = None) -> None:
        """Answer the requests for a model that has left the memory, or never will."""
        if record.use.hung:
            self._fail(record.key, model_hung(record.key.model))
        elif record.use.residency is Residency.NONE:
            freed = report.freed if isinstance(report, Unloaded) else None
            for reply in self._waiting.pop(record.key, ()):
                reply.send(ModelUnloaded(record.key, freed or 0))
                reply.end()

    def fail_all(self, problem: Problem) -> None:
        """Fail all requests."""
        for key in [*self._waiting]:
            self._fail(key, problem)

    def _fail(self, key: ModelKey, problem: Problem) -> None:
        for reply in self._waiting.pop(key, ()):
            reply.fail(problem)
