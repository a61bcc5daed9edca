"""How large a batch is, as policies see it."""

from __future__ import annotations

Shape = tuple[int, int]
"""Rows of a group and the length to which they are padded."""
