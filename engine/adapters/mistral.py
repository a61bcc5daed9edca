"""Mistral and Ministral: calls have short ids, and turns alternate."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class MistralAdapter(Adapter):
    """Adapter of the `mistral` family."""

    family = "mistral"
    default_tool_parser = "null"
    default_thinking_parser = "null"
