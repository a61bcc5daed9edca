"""IBM's Granite: Hermes-style calls."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class GraniteAdapter(Adapter):
    """Adapter of the `granite` family."""

    family = "granite"
    default_tool_parser = "hermes_json"
    default_thinking_parser = "null"
