"""Sizes in bytes for people."""

from __future__ import annotations


def byte_size(size: int) -> str:
    """Return a size in GB, or in MB if it is small; empty if it is 0."""
    if not size:
        return ""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
