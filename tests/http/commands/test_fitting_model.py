"""Commands that need a certain type of model and have none: refused at once, with advice on naming one."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.engine.catalog.folders import DEMO_FOLDER
from greenroom.tests.support.servers.server_processes import run_greenroom

COMMANDS = {
    "speech": ("speak", "Hello", "-o", "never.mp3"),
    "transcription": ("transcribe", __file__),
    "reranking": ("rerank", "who walks", "He walks."),
}


@pytest.mark.parametrize("purpose", COMMANDS)
def test_the_demo_model_is_not_started_for_what_it_cannot_do(purpose: str) -> None:
    refused = run_greenroom(*COMMANDS[purpose])
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert "no model is named, and the built-in demo model is for text" in line
    assert f"name one for {purpose} with -m, a local folder or a hub id" in line


def test_a_model_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    demo = str(DEMO_FOLDER)
    named = run_greenroom(*COMMANDS["speech"], "-m", demo)
    assert f"'{demo}' is a model for text: name one for speech with -m" in named.stderr
    embedding = run_greenroom("embed", demo, "Hello")
    assert f"'{demo}' is a model for text: name one for embeddings with MODEL" in embedding.stderr
    file = tmp_path / "settings.toml"
    file.write_text(f"models = ['{demo}']")
    configured = run_greenroom(*COMMANDS["transcription"], "--config", str(file))
    assert f"'{demo}', the first model of the settings, is for text: name one for" in configured.stderr
