"""Tests of the contexts that a Whisper model's configuration states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from greenroom.schemas.problems import ProblemError
from greenroom.tests.support.engines.transcription_engines import open_transcriber
from greenroom.tests.support.models.tiny_whisper import make_tiny_whisper


@pytest.mark.parametrize("field", ["n_text_ctx", "n_audio_ctx"])
def test_a_context_whose_mask_would_fill_the_memory_is_refused(field: str, tmp_path: Path) -> None:
    folder = make_tiny_whisper(tmp_path / "whisper")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: 5_000}))
    with pytest.raises(ProblemError) as refused, open_transcriber(folder):
        pass
    assert f"{field} = 5,000 (at most 4,096)" in refused.value.problem.detail
