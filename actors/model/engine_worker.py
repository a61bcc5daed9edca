"""The GPU worker that is lent to a model from load to unload, and how it is watched."""

from __future__ import annotations

import time
from typing import Any

import attrs
import trio

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import Worker, Workers
from greenroom.actors.engines import Engines, OpenedModel
from greenroom.actors.model.model_loop import Command, ModelLoop
from greenroom.schemas.model_key import ModelKey


@attrs.frozen(eq=False)
class WorkerStalled:
    """A worker has given no sign of life for too long."""

    loop: ModelLoop


class EngineWorker:
    """At most one worker at a time; the actor is told on `control` what it does, and when it has ended.

    Args:
        hang_timeout: Seconds without a sign of life after which the worker counts as hung.

    Attributes:
        hung: The worker is quarantined; it may still end.
    """

    def __init__(
        self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any], hang_timeout: float
    ) -> None:
        self.hung = False
        self._key = key
        self._engines = engines
        self._workers = workers
        self._control = control
        self._hang_timeout = hang_timeout
        self._loop: ModelLoop | None = None
        self._worker: Worker | None = None

    @property
    def active(self) -> bool:
        """Whether a worker is lent that has not ended."""
        return self._loop is not None

    def start(self, opened: OpenedModel, nursery: trio.Nursery) -> None:
        """Borrow a worker, load the model's weights on it, and watch it."""
        loop = ModelLoop(self._key, self._engines, opened, self._control.send_from_thread)
        self._loop = loop
        self._worker = self._workers.lend("gpu", loop.run, self._control.send)
        nursery.start_soon(self._watch, loop)

    def put(self, command: Command) -> None:
        """Have a command carried out before the next step, if there is a worker."""
        if self._loop is not None:
            self._loop.put(command)

    def unload(self) -> None:
        """Tell the worker to free the weights, in the middle of a load too."""
        if self._loop is not None:
            self._loop.abandon()

    def quarantine(self, stalled: WorkerStalled, log: Any) -> bool:
        """Quarantine a silent worker; return whether it was still the one that is lent."""
        if self._loop is not stalled.loop or self._worker is None:
            return False
        log.error("worker hangs", worker=self._worker.name, silent_seconds=self._hang_timeout)
        self._workers.quarantine(self._worker)
        self._loop.abandon()
        self.hung = True
        return True

    def record_end(self) -> bool:
        """Release the worker, which has ended; return whether it had been quarantined."""
        was_hung, self.hung = self.hung, False
        self._loop = self._worker = None
        return was_hung

    async def _watch(self, loop: ModelLoop) -> None:
        """Report a worker that is busy and gives no sign of life, once."""
        while not loop.ended:
            await trio.sleep(self._hang_timeout / 4)
            since = loop.busy_since
            if since is not None and time.monotonic() - since > self._hang_timeout:
                self._control.send(WorkerStalled(loop))
                return
