"""Hypercorn's log messages as structlog events, with one line per request."""

from __future__ import annotations

from typing import Any

from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.typing import ResponseSummary, WWWScope

from greenroom.http.transport.client_ids import log_fields_of
from greenroom.schemas.logs import get_logger

log = get_logger(actor="http")

PROBE_PATHS = ("/health", "/livez", "/readyz")
"""Paths of health probes, which arrive every few seconds and are logged at debug."""


class ServerLog(Logger):
    """Hypercorn's logger on top of structlog."""

    def __init__(self, config: Config) -> None:
        # The base class would open its own handlers.
        pass

    async def access(self, request: WWWScope, response: ResponseSummary | None, request_time: float) -> None:
        """Log a request that was answered, or whose client disconnected first (then `response` is None)."""
        write = log.debug if request["path"] in PROBE_PATHS else log.info
        write(
            "request answered" if response is not None else "client disconnected",
            method=request.get("method"),
            path=request["path"],
            status=int(response["status"]) if response is not None else None,
            ms=round(request_time * 1000, 1),
            request_id=request["state"].get("request_id"),
            **log_fields_of(request["state"]),
        )

    async def critical(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.critical(message, **kwargs)

    async def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.error(message, **kwargs)

    async def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.warning(message, **kwargs)

    async def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.info(message, **kwargs)

    async def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.debug(message, **kwargs)

    async def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.exception(message, **kwargs)

    async def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        log.log(level, message, **kwargs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)
