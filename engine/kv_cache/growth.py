"""Growth step of caches, and the threshold at which large ones start to grow."""

from __future__ import annotations

GROWTH_STEP = 256
"""Number of tokens that caches allocate at once, as in mlx-lm; growth copies everything."""


def allocated_tokens(tokens: int) -> int:
    """Return the allocated capacity, in tokens, of a cache with this many tokens."""
    return -(-tokens // GROWTH_STEP) * GROWTH_STEP


GROWN_AHEAD = 64
"""Free capacity, in tokens, at which a large cache starts to grow by a few layers per step."""

LARGE_BYTES = 32 * 1024 * 1024
"""Size in bytes from which a cache does not grow in one step, because the copy would stall streams."""
