"""Settings of the log."""

from __future__ import annotations

from typing import Literal, get_args

import attrs

from greenroom.schemas.settings.setting_fields import setting

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


@attrs.frozen(slots=False)
class Logs:
    """Settings of the log."""

    log_format: LogFormat = setting(
        "console", "`console` for people, `json` for machines.", one_of=get_args(LogFormat)
    )
    log_level: LogLevel = setting(
        "info",
        "Lowest level that is logged: `debug`, `info`, `warning` or `error`.",
        one_of=get_args(LogLevel),
    )
    log_content: bool = setting(False, "Log rendered prompts and raw answers, too, at the level `debug`.")
    explain: bool = setting(
        True,
        "Tell in the log, and to clients that ask, why a prompt was computed again and what a request waited "
        "for: places and figures, never text.",
    )
    inspect: int = setting(
        0,
        "Latest requests to keep in memory whole, with prompts and answers, for `greenroom inspect`; 0 keeps "
        "none.",
        low=0,
        high=10_000,
    )
