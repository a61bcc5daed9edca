"""Any other model: what its template shows is all that is known."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class DefaultAdapter(Adapter):
    """Adapter of the `default` family."""

    family = "default"
    default_tool_parser = "null"
    default_thinking_parser = "null"
