"""Metadata of stored objects: up to sixteen key-value pairs that a client attaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from greenroom.schemas.problems import ProblemError, invalid
from greenroom.schemas.wire import json_type

MAX_PAIRS = 16
MAX_KEY = 64
"""Longest key, in characters."""
MAX_VALUE = 512
"""Longest value, in characters."""


def parse_metadata(value: Any, field: str = "metadata") -> dict[str, str]:
    """Return a client's metadata; null means none.

    Raises:
        ProblemError: 400 that names the field: OpenAI's limits on pairs, keys and values.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(f"`{field}` must be an object, but is {json_type(value)}.", field, "invalid_type")
    if len(value) > MAX_PAIRS:
        detail = f"`{field}` has {len(value)} pairs, but must have at most {MAX_PAIRS}."
        raise invalid(detail, field)
    for key, entry in value.items():
        _check_pair(key, entry, field)
    return dict(value)


def _check_pair(key: str, entry: Any, field: str) -> None:
    if len(key) > MAX_KEY:
        raise _too_long(f"A key of `{field}`", len(key), MAX_KEY, field)
    name = f"{field}.{key}"
    if not isinstance(entry, str):
        raise invalid(f"`{name}` must be a string, but is {json_type(entry)}.", name, "invalid_type")
    if len(entry) > MAX_VALUE:
        raise _too_long(f"`{name}`", len(entry), MAX_VALUE, name)


def _too_long(what: str, length: int, most: int, field: str) -> ProblemError:
    return invalid(f"{what} has {length} characters, but must have at most {most}.", field)
