"""GLM-4 and later: a turn ends where the next one begins."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class GLM4Adapter(Adapter):
    """Adapter of the `glm4` family."""

    family = "glm4"
    default_tool_parser = "glm4_native"
    default_thinking_parser = "think_tag"
    turn_ends = ("<|user|>", "<|observation|>")
