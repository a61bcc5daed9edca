"""The cattrs converter of Anthropic's wire types; their modules register their hooks on it."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

ANTHROPIC = make_wire_converter()
