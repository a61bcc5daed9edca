"""The step by which caches grow, and when they begin to."""

from __future__ import annotations

GROWTH_STEP = 256
"""Tokens for which caches allocate memory at once, as mlx-lm's do: growing copies everything."""


def allocated_tokens(tokens: int) -> int:
    """Return for how many tokens a cache has allocated memory when it holds these."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP


GROWN_AHEAD = 64
"""Tokens that still fit in when a large cache begins to grow, a layer or a few at each step."""

LARGE_BYTES = 32 * 1024 * 1024
"""Of a cache that does not grow in one step: its copy would be felt by those who stream."""
