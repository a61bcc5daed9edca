"""The last lines of the log, kept in memory for operators."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

from structlog.typing import EventDict

LINES = 1_000
"""Number of lines that are kept."""
LONGEST = 8_192
"""Bytes of the longest line; of a longer one, only the main fields are kept, each cut."""
_MAIN = ("timestamp", "level", "event", "actor", "model", "request_id", "exception")


class LogRing:
    """The last lines of the log as JSON, written by any thread.

    Attributes:
        position: Number of lines so far.
    """

    def __init__(self, lines: int = LINES) -> None:
        self._lines: deque[bytes] = deque(maxlen=lines)
        self._lock = threading.Lock()
        self.position = 0

    def record(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """Keep an event, as a processor of structlog; the event passes unchanged."""
        line = _encoded({str(name): value for name, value in event.items() if str(name)[:1] != "_"})
        if len(line) > LONGEST:
            cut = {name: str(event[name])[:_CUT] for name in _MAIN if name in event}
            line = _encoded({**cut, "cut": True})
        with self._lock:
            self._lines.append(line)
            self.position += 1
        return event

    def after(self, position: int) -> tuple[list[bytes], int]:
        """Return the lines after a position, those that are still kept, and the position behind them."""
        with self._lock:
            new = max(0, min(self.position - position, len(self._lines)))
            return list(self._lines)[len(self._lines) - new :], self.position


_CUT = 512


def _encoded(event: dict[str, Any]) -> bytes:
    try:
        return json.dumps(event, default=repr, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError):  # numbers that JSON lacks, or circles
        return json.dumps({"event": repr(event)[:_CUT]}).encode("ascii")


LOG_RING = LogRing()
"""The ring of this process, which `configure_logging` fills."""
