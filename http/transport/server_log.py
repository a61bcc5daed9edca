"""Hypercorn's log messages as structlog events, with one line per request."""

from __future__ import annotations

from typing import Any

from hypercorn.config import Config
from hypercorn.logging import Logger
from hypercorn.typing import ResponseSummary, WWWScope

from greenroom.http.transport.request_connection import ANSWERED, log_fields_of
from greenroom.schemas.logs import get_logger

log = get_logger(actor="http")

PROBE_PATHS = ("/health", "/livez", "/readyz")
"""Paths of health probes, which arrive every few seconds and are logged at debug."""

_OF_STRANGERS = (401, 429)
"""Statuses of requests without a valid key, whose line tells where they come from."""


class ServerLog(Logger):
    """Hypercorn's logger on top of structlog."""

    def __init__(self, config: Config) -> None:
        # The base class would open its own handlers.
        pass

    async def access(self, request: WWWScope, response: ResponseSummary | None, request_time: float) -> None:
        """Log a request that was answered, or whose client disconnected first (then `response` is None).

        Some clients disconnect as soon as they have the end, before the protocol knows that it was sent.
        """
        state, client = request["state"], request.get("client")
        was_answered = response is not None or state.get(ANSWERED)
        fields = {
            "method": request.get("method"),
            "path": request["path"],
            "status": None if response is None else int(response["status"]),
            "ms": round(request_time * 1000, 1),
            "request_id": state.get("request_id"),
            **log_fields_of(state),
        }
        if client and fields["status"] in _OF_STRANGERS:
            fields["address"] = client[0]
        write = log.warning if (fields["status"] or 0) >= 500 else log.info
        write = log.debug if request["path"] in PROBE_PATHS else write
        write("request answered" if was_answered else "client disconnected", **fields)

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
