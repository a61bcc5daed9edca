"""The step by which caches grow."""

from __future__ import annotations

GROWTH_STEP = 256
"""Tokens for which caches allocate memory at once, as mlx-lm's do: growing copies everything."""


def allocated_tokens(tokens: int) -> int:
    """Return for how many tokens a cache has allocated memory when it holds these."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP
