"""`greenroom transcribe` in a separate process."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from greenroom.schemas.settings.settings import Settings
from greenroom.tests.support.media.recordings import noise, silence, write_recording
from greenroom.tests.support.servers.server_processes import run_greenroom
from greenroom.tests.support.servers.shared_servers import Shared

TEXT = "hello from the tiny whisper."


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    sound = np.concatenate([noise(3), silence(20), noise(3)])
    return write_recording(tmp_path / "speech.ogg", sound, "opus")


@pytest.fixture
def url(tiny_whisper: Path, shared: Shared) -> tuple[str, ...]:
    return ("--url", shared(Settings(models=(str(tiny_whisper),))).server.address)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_greenroom("transcribe", *map(str, arguments))


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.deep)])
@pytest.mark.deep
def test_a_transcript_goes_to_standard_output_or_into_a_file(
    tiny_whisper: Path, recording: Path, url: tuple[str, ...], alone: bool
) -> None:
    where = ("--local",) if alone else url
    plain = run(recording, "-m", tiny_whisper, *where)
    assert (plain.returncode, plain.stdout) == (0, f"{TEXT} {TEXT}\n")
    document = recording.with_suffix(".json")
    run(recording, "-m", tiny_whisper, *where, "-o", document, "--words", "--translate", "--language", "fr")
    told = json.loads(document.read_text())
    assert (told["language"], told["task"]) == ("fr", "translate")
    words = [word["text"] for segment in told["segments"] for word in segment["words"]]
    assert words == [" in", " English."] * 2


def test_what_cannot_be_transcribed_is_one_line_and_exit_1(
    tiny_whisper: Path, tmp_path: Path, url: tuple[str, ...]
) -> None:
    text = tmp_path / "speech.mp3"
    text.write_text("no sound at all " * 100)
    refused = run(text, "-m", tiny_whisper, *url)
    assert refused.returncode == 1
    assert refused.stderr.startswith("greenroom: This is no audio or video file")
    assert len(refused.stderr.splitlines()) == 1


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    file.touch()
    refused = run(file, "--words")
    assert refused.returncode == 2
    assert "--words needs" in refused.stderr
