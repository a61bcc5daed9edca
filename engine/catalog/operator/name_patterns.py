"""Names of models in settings, in which `*` stands for any text."""

from __future__ import annotations

import re

from greenroom.schemas.settings import Aliases


def name_pattern(name: str) -> re.Pattern[str]:
    """Return the expression that a name of a model matches as a whole."""
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", name).split("*"))), re.DOTALL)


def first_match(model: str, pairs: Aliases) -> str | None:
    """Return what stands beside the first name or pattern that is the model's; None if none is."""
    return next((meant for name, meant in pairs if name_pattern(name).fullmatch(model)), None)
