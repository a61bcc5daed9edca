"""Batch shape, the input of batching policies."""

from __future__ import annotations

Shape = tuple[int, int]
"""Rows of a batch and the length in tokens to which they are padded."""
