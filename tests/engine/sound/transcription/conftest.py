"""Models that are made once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.engine.loading.libraries import import_model_code
from greenroom.tests.support.engines.transcription_engines import Transcriber, open_transcriber
from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper


@pytest.fixture(scope="session")
def english_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_whisper(tmp_path_factory.mktemp("whisper") / "english")


@pytest.fixture
def english(english_folder: Path) -> Iterator[Transcriber]:
    with open_transcriber(english_folder) as transcriber:
        yield transcriber


@pytest.fixture
def multilingual(tiny_whisper: Path) -> Iterator[Transcriber]:
    with open_transcriber(tiny_whisper) as transcriber:
        yield transcriber


def library_model(folder: Path) -> Any:
    """Return mlx-audio's model, loaded by its own loader."""
    return import_model_code("mlx_audio.stt.utils").load_model(folder, model_type="whisper")
