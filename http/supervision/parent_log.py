"""Log lines of the supervising parent, in the server's formats, without loading structlog."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from datetime import UTC, datetime
from typing import Any

import attrs

from greenroom.schemas.settings.logs import LogFormat, LogLevel

_LONGEST_LINE = 4000
"""Bytes of a line that a pipe takes without waiting, once it takes any (PIPE_BUF)."""
_LEVELS = ("debug", "info", "warning", "error")


@attrs.frozen
class ParentLog:
    """The log of a supervising parent, on stderr."""

    log_format: LogFormat
    log_level: LogLevel

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        if _LEVELS.index(level) < _LEVELS.index(self.log_level):
            return
        told = {"actor": "supervisor", **fields}
        if self.log_format == "json":
            stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            line = json.dumps({**told, "event": event, "level": level, "timestamp": stamp}, default=repr)
        else:
            shown = " ".join(f"{name}={_shown(value)}" for name, value in told.items())
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{level:<9}] {event:<30} {shown}"
        with contextlib.suppress(OSError, ValueError):  # the server survives the reader of its log
            if select.select((), (2,), (), 0)[1]:  # a reader that has stopped must not stop this process
                os.write(2, line.encode("utf-8", "backslashreplace")[:_LONGEST_LINE] + b"\n")


def _shown(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and text else repr(value)
