"""Model name patterns in settings, in which `*` matches any text."""

from __future__ import annotations

import re

from greenroom.schemas.settings.settings import Aliases


def name_pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression that must match a whole model name."""
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", name).split("*"))), re.DOTALL)


def first_match(model: str, pairs: Aliases) -> str | None:
    """Return the value of the first name or pattern that matches a model; None without a match."""
    return next((meant for name, meant in pairs if name_pattern(name).fullmatch(model)), None)
