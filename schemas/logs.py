"""Loggers that write nothing until structlog is configured.

The command line configures it; a program that uses Greenroom as a library calls `structlog.configure`.
"""

from __future__ import annotations

from typing import Any, cast

import structlog
from structlog.typing import BindableLogger

_EVERY_LEVEL: Any = structlog.make_filtering_bound_logger("notset")


class _UnheardLogger(_EVERY_LEVEL):  # type: ignore[misc]
    """A logger that writes nothing until structlog is configured."""

    def _proxy_to_logger(self, *arguments: Any, **values: Any) -> Any:
        return super()._proxy_to_logger(*arguments, **values) if structlog.is_configured() else None


def get_logger(*names: str, **values: Any) -> Any:
    """Return a logger like `structlog.get_logger`, but one that is silent until structlog is configured."""
    made_by = cast("type[BindableLogger]", _logger)
    return structlog.wrap_logger(None, wrapper_class=made_by, logger_factory_args=names, **values)


def _logger(logger: Any, processors: Any, context: Any) -> Any:
    kind = structlog.get_config()["wrapper_class"] if structlog.is_configured() else _UnheardLogger
    return kind(logger, processors=processors, context=context)
