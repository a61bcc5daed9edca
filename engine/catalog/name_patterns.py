"""Names of models in settings, in which `*` stands for any text."""

from __future__ import annotations

import re


def name_pattern(name: str) -> re.Pattern[str]:
    """Return the expression that a name of a model matches as a whole."""
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", name).split("*"))), re.DOTALL)
