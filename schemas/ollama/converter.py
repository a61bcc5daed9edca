"""The converter of Ollama's wire types."""

from __future__ import annotations

from greenroom.schemas.wire import make_wire_converter

OLLAMA = make_wire_converter()
