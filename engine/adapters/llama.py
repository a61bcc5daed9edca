"""Llama 3 and later, and the many models that borrow its architecture."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class LlamaAdapter(Adapter):
    """Adapter of the `llama` family."""

    family = "llama"
    default_tool_parser = "llama_xml"
    default_thinking_parser = "null"
    turn_ends = ("<|eot|>",)
