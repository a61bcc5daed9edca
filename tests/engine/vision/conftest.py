"""Adapters of tiny vision models, one per kind, shared by all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.vision.vision_adapter import VisionAdapter
from greenroom.tests.support.engines.vision_adapters import seeing_adapter
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

Opened = tuple[Path, VisionAdapter]


@pytest.fixture(scope="session")
def opened_kind(tiny_vision_model: TinyVisionModel) -> Callable[[str], Opened]:
    """Return a function from a kind to a tiny model's folder and adapter, made once."""
    opened: dict[str, Opened] = {}

    def open_kind(kind: str) -> Opened:
        if kind not in opened:
            folder = tiny_vision_model(kind)
            opened[kind] = folder, seeing_adapter(folder)
        return opened[kind]

    return open_kind
