"""Model name patterns in settings, in which `*` matches any text."""

from __future__ import annotations

import functools
import re


def is_pattern(name: str) -> bool:
    """Return whether a name in the settings stands for any number of models."""
    return "*" in name


@functools.lru_cache(maxsize=512)
def name_pattern(name: str) -> re.Pattern[str]:
    """Return a regular expression that must match a whole model name."""
    return re.compile(".*".join(map(re.escape, re.sub(r"\*+", "*", name).split("*"))), re.DOTALL)
