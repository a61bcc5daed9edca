"""Lookup of the text part of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = ("text_config", "llm_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the nested configuration of a model's text part; empty if nothing is nested."""
    return next((half for name in _NAMES if isinstance(half := config.get(name), dict)), {})
