"""Parts of an answer that a response template tells apart."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class RegionText:
    """Text of a field that is not a call, as far as it is known."""

    field: str
    text: str


@attrs.frozen
class Region:
    """A whole region between its markers.

    Args:
        raw: Text with its markers.
        value: Its value; None if the content cannot be read.
        closed: False if the text ended before its closing marker.
    """

    field: str
    raw: str
    value: Any
    closed: bool
