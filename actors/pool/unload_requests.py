"""Requests of operators to unload models, until each has been answered."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.actors.core.reply import Reply
from greenroom.actors.pool.model_record import ModelRecord
from greenroom.actors.pool.planning.pool_state import Residency
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import Problem, model_hung, model_pinned
from greenroom.schemas.protocols.model_protocol import ModelReport, Reopen, Unloaded
from greenroom.schemas.protocols.pool_protocol import ModelUnloaded, Unloading, UnloadModel


class UnloadRequests:
    """The replies that wait for models to leave the memory.

    Args:
        drop_held: Function that drops what a model has left, by its own name, and returns the bytes.
    """

    def __init__(self, drop_held: Callable[[str], int]) -> None:
        self._drop_held = drop_held
        self._waiting: dict[ModelKey, list[tuple[Reply, UnloadModel]]] = {}

    def add(self, record: ModelRecord, reply: Reply, message: UnloadModel) -> bool:
        """Answer a request at once, or keep it; return whether the model is to be unloaded."""
        if record.use.hung:
            reply.fail(model_hung(record.key.model))
        elif message.spares_pinned and record.use.pinned:
            reply.fail(model_pinned(record.key.model))
        else:
            reply.send(Unloading(record.key))
            held = self._dropped(record.key, message)
            if record.use.resident and not (message.reopens and record.use.residency is Residency.OPENING):
                self._waiting.setdefault(record.key, []).append((reply, message))
                return True
            reply.send(ModelUnloaded(record.key, held))
            reply.end()
        return False

    def answer(self, record: ModelRecord, report: ModelReport | None = None) -> None:
        """Answer the requests for a model that has left the memory, or never will."""
        if record.use.hung:
            self._fail(record.key, model_hung(record.key.model))
        elif record.use.residency is Residency.NONE:
            freed = report.freed if isinstance(report, Unloaded) else None
            for reply, message in self._waiting.pop(record.key, ()):
                held = self._dropped(record.key, message)  # a load that began later may have left some
                reply.send(ModelUnloaded(record.key, (freed or 0) + held))
                reply.end()

    def fail_all(self, problem: Problem) -> None:
        for key in [*self._waiting]:
            self._fail(key, problem)

    def _dropped(self, key: ModelKey, message: UnloadModel) -> int:
        return 0 if message.keeps_prefixes else self._drop_held(key.model)

    def _fail(self, key: ModelKey, problem: Problem) -> None:
        for reply, _ in self._waiting.pop(key, ()):
            reply.fail(problem)


def reopen(record: ModelRecord) -> bool:
    """Have a model open its files anew, once no engine is loaded from them; return whether that is now."""
    if record.model is None:
        return False
    record.model.send(Reopen())
    return record.use.residency in (Residency.NONE, Residency.OPENING)
