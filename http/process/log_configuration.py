"""Logging of everything that the process writes, in one stream.

With `json` every line on stderr is one JSON object: our own events, the standard library's logging (used by
Hypercorn and the model libraries), warnings, uncaught exceptions of any thread, and output that libraries
print; stdout stays empty. The only exception is faulthandler's text, written while the process dies.
"""

from __future__ import annotations

import atexit
import faulthandler
import io
import json
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from greenroom.schemas.logs import get_logger
from greenroom.schemas.settings.setting_groups import LogFormat, LogLevel

NOISY_LIBRARIES = ("httpcore2", "httpx2", "filelock", "urllib3", "asyncio", "PIL")
"""Libraries whose debug and info messages are useless to an operator."""
WARNING_LIBRARIES = ("transformers", "huggingface_hub", "mlx_lm", "mlx_vlm", "mlx_audio")
"""Libraries whose warnings address developers; they are logged only at `debug`."""


_EVERY_LEVEL: Any = structlog.make_filtering_bound_logger(logging.NOTSET)


class _LevelledLogger(_EVERY_LEVEL):  # type: ignore[misc]
    """A logger whose lowest level can change, since structlog's are made for one level and then cached."""

    level: ClassVar[int] = logging.INFO

    def debug(self, event: str, *arguments: Any, **values: Any) -> Any:
        return super().debug(event, *arguments, **values) if self.level <= logging.DEBUG else None

    def info(self, event: str, *arguments: Any, **values: Any) -> Any:
        return super().info(event, *arguments, **values) if self.level <= logging.INFO else None

    def warning(self, event: str, *arguments: Any, **values: Any) -> Any:
        return super().warning(event, *arguments, **values) if self.level <= logging.WARNING else None


_OF_SEVERAL_LINES = ("event", "exception", "stack")


def configure_logging(log_format: LogFormat, log_level: LogLevel, told_otherwise: Sequence[str] = ()) -> None:
    """Send logs, warnings and uncaught exceptions to stderr in one format. Call it before importing models.

    Args:
        log_format: Format of the lines; `json` also replaces stdout and stderr to turn printed output into
            events.
        told_otherwise: Events to omit, except at level `debug`.
    """
    sink = LineSink(sys.stderr, partial(_lost_lines, log_format))
    set_log_level(log_level)
    level = _number(log_level)
    rendering = _renderers(log_format, colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ)
    left_out = () if level <= logging.DEBUG else tuple(told_otherwise)

    def leave_out(_logger: object, _method: str, event: EventDict) -> EventDict:
        if event.get("event") in left_out:
            raise structlog.DropEvent
        return event

    structlog.configure(
        processors=[leave_out, structlog.contextvars.merge_contextvars, *_COMMON_PROCESSORS, *rendering],
        wrapper_class=_LevelledLogger,
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", sink)),
        cache_logger_on_first_use=True,
    )
    _configure_standard_logging(sink, level, rendering)
    _install_exception_hooks()
    faulthandler.enable(file=sys.stderr)
    if log_format == "json":
        _log_prints(sys.stderr)


def set_log_level(log_level: LogLevel) -> None:
    """Change the lowest level that is logged, also of loggers that are in use."""
    level = _LevelledLogger.level = _number(log_level)
    logging.getLogger().setLevel(level)
    for name in NOISY_LIBRARIES:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    # It logs each fault of a tool server with a traceback; ours are named events.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    for name in WARNING_LIBRARIES:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else max(level, logging.ERROR))


def _number(log_level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[log_level.upper()]


def configure_command_logging(log_level: LogLevel) -> None:
    """Configure logging for a command with other terminal output: errors only, or everything at `debug`.

    The command itself reports models that fail to load.
    """
    configure_logging(
        "console", "debug" if log_level == "debug" else "error", told_otherwise=("state changed",)
    )


def _lost_lines(log_format: LogFormat, count: int) -> str:
    """Return the log line with the number of lost lines; it is written while the logger runs."""
    event: EventDict = {"event": "log lines lost", "count": count, "actor": "system", "level": "warning"}
    if log_format == "console":
        return f"log lines lost: {count}\n"
    stamped = structlog.processors.TimeStamper(fmt="iso", utc=True)(None, "warning", event)
    return f"{json.dumps(stamped)}\n"


_COMMON_PROCESSORS: list[Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.StackInfoRenderer(),
]


def _renderers(log_format: LogFormat, colors: bool) -> list[Processor]:
    if log_format == "json":
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        return [*_finished(stamp), structlog.processors.JSONRenderer(default=repr)]
    stamp = structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False)
    console = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, sort_keys=False
    )
    return [*_finished(stamp), _escape, _leave_zeros_out, console]


def _finished(stamp: Processor) -> tuple[Processor, ...]:
    return stamp, structlog.processors.format_exc_info, LOG_RING.record


def _leave_zeros_out(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Omit zero figures of a request from the console; JSON keeps all fields."""
    if str(event.get("event", "")).startswith("request "):
        return {key: value for key, value in event.items() if isinstance(value, str) or value != 0}
    return event


def _escape(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, which a terminal would interpret: any client may put them into a path."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            kept = "\n\t" if key in _OF_SEVERAL_LINES else ""
            event[key] = "".join(
                each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
                for each in value
            )
    return event


def _configure_standard_logging(sink: LineSink, level: int, rendering: list[Processor]) -> None:
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                *_COMMON_PROCESSORS,
            ],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    logging.captureWarnings(True)


def _install_exception_hooks() -> None:
    log = get_logger()

    def uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            log.critical("uncaught exception", exc_info=(kind, error, traceback))

    def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, SystemExit):
            error = args.exc_value or args.exc_type()
            name = args.thread.name if args.thread else None
            log.critical(
                "uncaught exception in a thread",
                thread=name,
                exc_info=(args.exc_type, error, args.exc_traceback),
            )

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        error = args.exc_value or args.exc_type()
        log.error(
            args.err_msg or "exception ignored",
            object=repr(args.object),
            exc_info=(args.exc_type, error, args.exc_traceback),
        )

    sys.excepthook = uncaught
    threading.excepthook = uncaught_in_thread
    sys.unraisablehook = unraisable


def _log_prints(real: TextIO) -> None:
    # The log cannot show progress bars. Libraries read these variables on import.
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    stdout, stderr = PrintedLines("stdout", real), PrintedLines("stderr", real)
    atexit.register(stdout.finish)
    atexit.register(stderr.finish)
    sys.stdout, sys.stderr = stdout, stderr


class PrintedLines(io.TextIOBase):
    """Replacement for stdout or stderr that logs each complete line as an event. `real`: original stream,
    whose file descriptor `fileno` returns.
    """

    def __init__(self, name: str, real: TextIO) -> None:
        log = get_logger()
        self._emit = log.warning if name == "stderr" else log.info
        self._name = name
        self._real = real
        self._unfinished = threading.local()
        self.buffer = _PrintedBytes(self)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._real.fileno()

    def write(self, text: str, /) -> int:
        pending = getattr(self._unfinished, "text", "") + text.replace("\r", "\n")
        *lines, self._unfinished.text = pending.split("\n")
        for line in filter(str.strip, lines):
            self._emit("printed", stream=self._name, text=line)
        return len(text)

    def finish(self) -> None:
        """Log the incomplete line of this thread."""
        self.write("\n")


class _PrintedBytes(io.RawIOBase):
    def __init__(self, stream: PrintedLines) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._stream.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)


PATIENCE = 1.0
"""Seconds to wait for a reader that has stopped, while the event loop stands still."""
_SHARE = 0.1  # Largest part of later time in which a reader that is slow, or stops again, holds it up


class LineSink:
    """Writes whole lines and never fails, since the server must survive the reader of its log.

    A pipe or terminal whose reader stops would stop every thread that logs. So lines are dropped once it has
    taken nothing for a while, and counted in the log as soon as it takes more.
    """

    def __init__(self, stream: TextIO, lost_lines: Callable[[int], str]) -> None:
        self._stream = stream
        self._lost_lines = lost_lines
        self._lock = threading.Lock()
        self._dropped = 0
        self._waited = self._asked = 0.0
        self._is_cut = False
        try:
            self._descriptor: int | None = stream.fileno()
        except (OSError, io.UnsupportedOperation):
            self._descriptor = None

    def write(self, line: str) -> None:
        """Write a line, or drop it."""
        with self._lock:
            try:
                if self._descriptor is None:
                    self._stream.write(line)
                    self._stream.flush()
                else:
                    self._write_in_time(self._descriptor, line.encode("utf-8", "backslashreplace"))
            except (OSError, ValueError):
                pass

    def flush(self) -> None:
        """Do nothing: `write` has already flushed."""

    def _write_in_time(self, descriptor: int, line: bytes) -> None:
        told = self._lost_lines(self._dropped).encode() if self._dropped else b""
        unsent = (b"\n" if self._is_cut else b"") + told + line
        while unsent:
            if not self._takes_more(descriptor):
                self._dropped += 1
                return
            # So many bytes are taken without blocking (`select.PIPE_BUF`).
            sent = os.write(descriptor, unsent[: select.PIPE_BUF])
            unsent = unsent[sent:]
            self._is_cut = bool(unsent)
        self._dropped = 0

    def _takes_more(self, descriptor: int) -> bool:
        now = time.monotonic()
        self._waited = max(0.0, self._waited - (now - self._asked) * _SHARE)
        self._asked = now
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        takes = bool(poll.poll(1000 * max(0.0, PATIENCE - self._waited)))
        self._waited += time.monotonic() - now
        return takes


LINES = 1_000  # Number of lines that are kept
LONGEST = 8_192  # Bytes of the longest line; of a longer one, only the main fields are kept, each cut
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


LOG_RING = LogRing()  # The ring of this process, which `configure_logging` fills
