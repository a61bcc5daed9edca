"""The GPU worker that is lent to a model from load to unload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from greenroom.actors.core.ref import Control
from greenroom.actors.core.worker import JobCrashed, Workers, WorkerSilent
from greenroom.actors.engines.engines import Engines, OpenedModel
from greenroom.actors.model.model_loop import Command, LoopEnded, ModelLoop, ReleaseCaches, Suspend
from greenroom.schemas.model_key import ModelKey
from greenroom.schemas.problems import model_crashed


class EngineWorker:
    """The model's GPU worker, at most one at a time; `control` receives its reports, its hang and its end.

    Attributes:
        hung: True if the worker is quarantined; it may still end.
        released: Event, set while no worker holds the model's memory.
    """

    def __init__(self, key: ModelKey, engines: Engines, workers: Workers, control: Control[Any]) -> None:
        self.hung = False
        self.released = trio.Event()
        self.released.set()
        self._silent = trio.Event()
        self._key = key
        self._engines = engines
        self._workers = workers
        self._control = control
        self._loop: ModelLoop | None = None

    @property
    def active(self) -> bool:
        """True if a worker is lent and its end has not been recorded."""
        return self._loop is not None

    def start(self, opened: OpenedModel) -> None:
        """Borrow a worker and load the model's weights on it, unless one is borrowed already."""
        if self._loop is None:
            self._loop = ModelLoop(self._key, self._engines, opened, self._control.send_from_thread)
            self.released, self._silent = trio.Event(), trio.Event()
            self._workers.lend("gpu", self._loop.run, self._report, str(self._key))

    def put(self, command: Command) -> None:
        if self._loop is not None:
            self._loop.put(command)

    def pop_commands(self) -> list[Command]:
        """Remove and return the commands that the worker did not execute before it ended."""
        return self._loop.pop_commands() if self._loop is not None else []

    def unload(self, *, suspends: bool = False) -> None:
        """Tell the worker to release the weights, even in the middle of a load.

        Args:
            suspends: True to unload only once running requests can be suspended, to resume in another engine.
        """
        if suspends:
            self.put(Suspend())
        elif self._loop is not None:
            self._loop.abandon()

    def trim(self) -> None:
        self.put(ReleaseCaches())

    def record_end(self) -> bool:
        """Forget the worker, which has ended, and return whether it was quarantined."""
        was_hung, self.hung = self.hung, False
        self._loop = None
        return was_hung

    async def wait_released(self, on_silent: Callable[[], None]) -> None:
        """Wait until the worker has ended; call `on_silent` if it hangs or has hung meanwhile."""

        async def wait_silent() -> None:
            await self._silent.wait()
            on_silent()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_silent)
            await self.released.wait()
            nursery.cancel_scope.cancel("the worker has ended")

    def _report(self, report: LoopEnded | JobCrashed | WorkerSilent) -> None:
        if isinstance(report, WorkerSilent):
            self.hung = True
            self.unload()
            self._silent.set()
            self._control.send(report)
            return
        self.released.set()
        crashed = isinstance(report, JobCrashed)
        self._control.send(LoopEnded(model_crashed(self._key.model)) if crashed else report)
