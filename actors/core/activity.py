"""Record of native code's work in this process, which may crash the process or block all of its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Activity:
    """The models that load or compute now, and whether a library is imported.

    All methods may be called on any thread.

    Args:
        on_change: Callback after each change, on the thread that caused it and before the work begins; must
            not block.
    """

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._busy: dict[object, str] = {}
        self._imports = 0
        self._lock = threading.Lock()

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that load or compute, each once."""
        with self._lock:
            return tuple(dict.fromkeys(self._busy.values()))

    @property
    def importing(self) -> bool:
        """True while a library is imported, which may hold the interpreter's lock for long."""
        return self._imports > 0

    def set_busy(self, thread: object, model: str, busy: bool) -> None:
        """Record that a thread begins or ends work for a model; a thread of no model is not recorded.

        Args:
            thread: Any hashable object that stands for the thread.
        """
        with self._lock:
            changed = (self._busy.get(thread) is not None) != busy
            if busy and model:
                self._busy[thread] = model
            else:
                self._busy.pop(thread, None)
        if changed and model:
            self._tell()

    def set_importing(self, importing: bool) -> None:
        with self._lock:
            self._imports += 1 if importing else -1
        self._tell()

    def _tell(self) -> None:
        if self._on_change is not None:
            self._on_change()
