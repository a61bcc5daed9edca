"""JSON pointers inside a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

_MAX_INDEX_DIGITS = 6


def value_at(document: Any, reference: str) -> Any:
    """Return the value at `#/…`, a JSON pointer as a fragment (RFC 6901); None if there is none."""
    value = document
    for part in unquote(reference.removeprefix("#/")).split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, Sequence) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_INDEX_DIGITS
