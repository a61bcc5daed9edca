"""Durations of Ollama's `keep_alive`: how long a model stays in memory after a request.

Source: api/types.go of Ollama (`Duration.UnmarshalJSON`) and Go's `time.ParseDuration`.
"""

from __future__ import annotations

import math
import re
from typing import Any

from greenroom.schemas.messages.requests import KeepAlive
from greenroom.schemas.problems import invalid

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MAX_DIGITS = 64


def parse_keep_alive(value: Any) -> KeepAlive | None:
    """Return the wish of a request; None if it has none.

    A number counts seconds, a text has units (`5m`, `1h30m`); negative ones mean no limit.

    Raises:
        ProblemError: 400 that names the field.
    """
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is None or math.isnan(seconds):
        detail = "`keep_alive` must be a number of seconds, or a duration such as '5m', '0' or '-1s'."
        raise invalid(detail, "keep_alive")
    return KeepAlive(None if seconds < 0 or math.isinf(seconds) else seconds)


def _seconds(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -1.0
    if not isinstance(value, str) or len(value) > _MAX_DIGITS:
        return None
    text = value.removeprefix("+")
    sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)
