"""Gemma: no system turn before its third generation, no tool format of its own before its fourth."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class GemmaAdapter(Adapter):
    """Adapter of the `gemma` family."""

    family = "gemma"
    default_tool_parser = "null"
    default_thinking_parser = "null"
    turn_ends = ("<turn|>",)
