"""Fixture that makes tiny models of every type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from greenroom.tests.support.models.late_disks import unstack_experts


@pytest.fixture
def folder_of(
    tiny_model: Callable[..., Path],
    tiny_vision_model: Callable[..., Path],
    tiny_encoder: Callable[..., Path],
    tiny_pocket: Path,
    tiny_whisper: Path,
    tmp_path: Path,
) -> Callable[[str], Path]:
    """`folder_of("vision:qwen2_5_vl")` is the folder of a tiny model of that type and architecture."""

    def make(kind: str) -> Path:
        match kind.split(":"):
            case ["text", name]:
                return tiny_model(name)
            case ["experts", name]:
                return unstack_experts(tiny_model(name), tmp_path / "unstacked")
            case ["vision", name]:
                return tiny_vision_model(name)
            case ["speech", _]:
                return tiny_pocket
            case ["transcription", _]:
                return tiny_whisper
            case [_, name]:
                return tiny_encoder(name)
        raise AssertionError(kind)

    return make
