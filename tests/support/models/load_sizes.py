"""Memory that tiny models need."""

from __future__ import annotations

from pathlib import Path

from greenroom.engine.catalog.kind_detection import detect
from greenroom.engine.loading.load_size import load_size
from greenroom.schemas.settings.settings import Settings


def needs(model: str) -> int:
    """Return the bytes of a model's weights and caches, by its folder."""
    return load_size(Path(model), detect(Path(model)), Settings()).total
