"""A thread for calls that wait for the disk. They call nothing of MLX."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class DiskThread:
    """Makes calls in order; unlike an executor's it is a daemon: a disk that hangs keeps no process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Have a call made; it is let go of before its result is there."""
        future: Future[Result] = Future()
        self._calls.put((call, future))
        return future

    def close(self, seconds: float) -> bool:
        """End when all calls are made; return whether they are, in time."""
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._calls.get()) is not None:
            call, future = job
            result, error = None, None
            try:
                if future.set_running_or_notify_cancel():
                    result = call()
            except BaseException as raised:
                error = raised
            del job, call
            if error is not None:
                future.set_exception(error)
            elif not future.cancelled():
                future.set_result(result)
            del future, result, error
