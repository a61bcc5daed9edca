"""The cattrs converter of Ollama's wire types; their modules register their hooks on it."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

OLLAMA = make_wire_converter()
