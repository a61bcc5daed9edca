"""Adapters of tiny models that see, one of each kind for all tests here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.engine.vision.prompts.vision_adapter import VisionAdapter
from greenroom.tests.support.engines.vision_adapters import seeing_adapter
from greenroom.tests.support.models.tiny_vision_models import TinyVisionModel

Opened = tuple[Path, VisionAdapter]


@pytest.fixture(scope="session")
def opened_kind(tiny_vision_model: TinyVisionModel) -> Callable[[str], Opened]:
    """`opened_kind(kind)` is the folder and the adapter of a tiny model, made once."""
    opened: dict[str, Opened] = {}

    def open_kind(kind: str) -> Opened:
        if kind not in opened:
            folder = tiny_vision_model(kind)
            opened[kind] = folder, seeing_adapter(folder)
        return opened[kind]

    return open_kind
