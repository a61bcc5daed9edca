"""Liquid's LFM2: calls are written as Python."""

from __future__ import annotations

from greenroom.engine.adapters.base import Adapter


class LiquidAdapter(Adapter):
    """Adapter of the `liquid` family."""

    family = "liquid"
    default_tool_parser = "mlx_lm.pythonic"
    default_thinking_parser = "think_tag"
