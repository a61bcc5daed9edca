"""Threads for blocking disk calls, which never call MLX."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class DiskThread:
    """Thread that runs calls in order; a daemon, so that a hanging disk cannot keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], Result]) -> Future[Result]:
        """Queue a call; the thread drops its reference to the call before the result is set."""
        future: Future[Result] = Future()
        self._calls.put((call, future))
        return future

    def close(self, seconds: float) -> bool:
        """Stop after all queued calls; return whether the thread ended within the timeout."""
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
