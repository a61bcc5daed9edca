"""Find the half of a configuration that is about text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = ("text_config", "llm_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a model's config.json nests for the half that reads text; empty if it nests nothing."""
    return next((half for name in _NAMES if isinstance(half := config.get(name), dict)), {})
