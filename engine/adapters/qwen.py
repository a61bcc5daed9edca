"""Qwen 2, 2.5, 3 and their kin: ChatML turns, Hermes-style calls."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class QwenAdapter(Adapter):
    """Adapter of the `qwen` family."""

    family = "qwen"
    default_tool_parser = "hermes_json"
    default_thinking_parser = "think_tag"
